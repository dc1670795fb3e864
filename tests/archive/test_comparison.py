"""Comparing jobs: what differs, what only seems to, and how long it may take."""

import re
import time

import pytest
from django.urls import reverse
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.archive.domain import comparison
from apps.archive.domain.comparison import ComparedJob, compare_lines, compare_variables, normalise
from apps.archive.domain.differences import difference
from apps.archive.models import ArchivedJob
from apps.jobs.models import Job
from tests.archive.spool_writer import environment_bytes
from tests.factories import jobs, people
from tests.factories.archive import captured_job, store

LINES = st.lists(st.sampled_from(["a", "b", "c", "srun x 1", "srun x 2", "", "fi"]), max_size=30)


def compare(left, right):
    return compare_lines(left, right, left, right)


@given(LINES, LINES)
@settings(deadline=None)
def test_rows_are_both_scripts_in_order(left, right):
    rows = compare(left, right)

    assert [row.left_text for row in rows if row.left] == left
    assert [row.right_text for row in rows if row.right] == right
    assert [row.left for row in rows if row.left] == list(range(1, len(left) + 1))
    assert [row.right for row in rows if row.right] == list(range(1, len(right) + 1))
    for row in rows:
        same = bool(row.left and row.right) and row.left_text == row.right_text
        assert (row.kind == "equal") == same


def test_comparison_that_takes_too_long_is_plain(monkeypatch):
    """Of lines that both sides have often the alignment is costly,
    between many anchors even more so.
    """
    monkeypatch.setattr(comparison, "SECONDS", 0.2)
    blocks = [
        [f"srun {number % 2} {letter}" for number in range(120)]
        for letter in "abcdefghijklmnopqrst" * 2
    ]
    left = [
        line
        for at, block in enumerate(blocks)
        for line in (f"left and right {at}", *block, *reversed(block))
    ]
    right = [
        line
        for at, block in enumerate(blocks)
        for line in (f"left and right {at}", *block[1::2], *block[::2])
    ]
    # The process is there.
    comparison.compare(ComparedJob("1", ["a"], {}), ComparedJob("2", ["a"], {}), exact=False)
    began = time.monotonic()
    compared = comparison.compare(
        ComparedJob("1", left, {"A": "1"}), ComparedJob("2", right, {"A": "2"}), exact=False
    )

    assert time.monotonic() - began < 10  # on a busy machine
    assert compared.plain
    assert [row.left_text for row in compared.rows if row.left] == left
    assert [row.right_text for row in compared.rows if row.right] == right
    assert {f"left and right {at}" for at in range(40)} <= {
        row.left_text for row in compared.rows if row.kind == "equal"
    }
    assert [change.name for change in compared.changes] == ["A"]


def test_lines_of_many_words_end_soon():
    comparison.compare(ComparedJob("1", ["a"], {}), ComparedJob("2", ["a"], {}), exact=False)
    left, right = (
        [" ".join(letters[(at * number) % 7] for number in range(145)) for at in range(620)]
        for letters in ("abcabca", "abccaba")
    )
    began = time.monotonic()
    compared = comparison.compare(
        ComparedJob("1", left, {}), ComparedJob("2", right, {}), exact=False
    )

    assert time.monotonic() - began < 10
    assert [row.left_text for row in compared.rows if row.left] == left


@given(LINES)
def test_same_script_has_no_difference(lines):
    assert all(row.kind == "equal" for row in compare(lines, lines))


def test_added_and_removed_lines_are_told_from_changed_ones():
    rows = compare(["a", "b", "srun x 1", "z"], ["a", "srun x 2", "z", "new"])

    assert [(row.kind, row.left, row.right) for row in rows] == [
        ("equal", 1, 1),
        ("changed", 2, 2),
        ("removed", 3, None),
        ("equal", 4, 3),
        ("added", None, 4),
    ]


def test_words_that_differ_are_marked():
    (row,) = compare(["srun ./sim --seed 17 --mem=4G"], ["srun ./sim --seed 18 --mem=4G"])

    assert [piece.text for piece in row.left_pieces if piece.changed] == ["17"]
    assert [piece.text for piece in row.right_pieces if piece.changed] == ["18"]


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (["same"] * 5000, ["same", "other"] * 2500),
        ([str(i % 7) for i in range(5000)], [str(i % 5) for i in range(5000)]),
        ([f"line {i}" for i in range(5000)], [f"line {i}" for i in range(5000, 0, -1)]),
        (["x" * 40_000], ["y" * 40_000]),
        (["a b " * 5000], ["b a " * 5000]),
    ],
    ids=["repeated", "few kinds", "reversed", "long line", "long line of words"],
)
def test_worst_cases_end_soon(left, right):
    began = time.process_time()
    rows = compare(left, right)

    assert time.process_time() - began < 3
    assert [row.right_text for row in rows if row.right] == right


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("echo run  ", "echo run"),
        ("cp x /tmp/ana.17/a", "cp x /tmp/ana.18/b"),
        ("cd /scratch/2026-11-20T09:12:01Z", "cd /scratch/2026-11-21T10:00:00Z"),
        ("log.20261120_0912", "log.20261121_1001"),
        ("run deadbeef01", "run cafebabe02"),
        ("id 6ba7b810-9dad-11d1-80b4-00c04fd430c8", "id 6ba7b811-9dad-11d1-80b4-00c04fd430c9"),
        ("date: 09:12:59", "date: 10:00:00"),
    ],
)
def test_what_differs_in_every_run_is_made_equal(one, other):
    assert normalise(one) == normalise(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("--seed 17", "--seed 18"),
        ("gromacs/2023.3", "gromacs/2024.1"),
        ("--mem=4G", "--mem=8G"),
        ("a  b", "a b"),
        ("  a", "a"),
        ("/data/tmp/a", "/data/tmp/b"),
        ("beef", "cafe"),
        ("12345678", "12345679"),
        ("<masked:0123456789abcdef>", "<masked:0123456789abcdee>"),
    ],
)
def test_what_matters_stays(one, other):
    assert normalise(one) != normalise(other)


def test_own_job_id_is_made_equal():
    assert normalise("out.4711.log", job_id="4711") == normalise("out.4712.log", job_id="4712")
    assert normalise("out.47110.log", job_id="4711") == "out.47110.log"


@given(st.text(max_size=200))
def test_normalising_twice_changes_nothing(text):
    line = text.replace("\n", "")
    assert normalise(normalise(line)) == normalise(line)


@given(st.text(alphabet="abcdef0123456789-:/tmp TZ2026", max_size=60))
def test_normalising_twice_changes_nothing_about_dates_and_ids(line):
    assert normalise(normalise(line)) == normalise(line)


def test_variables_by_name():
    changes = compare_variables({"A": "1", "B": "2", "C": "3"}, {"B": "2", "C": "4", "D": "5"})

    assert [(change.name, change.kind) for change in changes] == [
        ("A", "removed"),
        ("B", "equal"),
        ("C", "changed"),
        ("D", "added"),
    ]


SUCCESS = (
    b"#!/bin/bash\n#SBATCH --mem=8G\n"
    + b"".join(b"step %d\n" % i for i in range(30))
    + b"srun ./sim -n 4\n"
)
FAILURE = SUCCESS.replace(b"--mem=8G", b"--mem=4G").replace(
    b"step 20", b"<script>alert(1)</script>"
)


@pytest.fixture
def pair(db, nova):
    """A success of yesterday and a failure of the same stage."""
    shared = {"request_key": "NOVA-0231", "stage": "sim", "user": "ana"}
    left = [
        ("MODE", "fast"),
        ("TOKEN", "<masked:0123456789abcdef>"),
        ("SLURM_JOB_ID", "1"),
        ("OUT", "/tmp/1/x"),
    ]
    right = [
        ("MODE", "slow"),
        ("TOKEN", "<masked:fedcba9876543210>"),
        ("SLURM_JOB_ID", "2"),
        ("OUT", "/tmp/2/x"),
    ]
    store(
        captured_job(
            1,
            script=SUCCESS,
            environment=environment_bytes(left),
            masked_names=("TOKEN",),
            **shared,
        ),
        captured_job(
            2,
            minutes=60,
            script=FAILURE,
            environment=environment_bytes(right),
            masked_names=("TOKEN",),
            **shared,
        ),
        captured_job(3, minutes=30, script=SUCCESS, user="ana"),
        captured_job(4, minutes=120, script=SUCCESS, environment=environment_bytes(left), **shared),
    )
    ArchivedJob.objects.filter(job_id__in=["1", "3"]).update(state="completed")
    return {job.job_id: job for job in ArchivedJob.objects.all()}


@pytest.mark.parametrize(
    "name", ["SLURM_NTASKS", "SLURM_MEM_PER_NODE", "SLURM_RLIMIT_NOFILE", "SLURM_EXPORT_ENV"]
)
def test_what_was_asked_for_is_no_noise(db, shifter, name):
    runs = [
        [("SLURM_SUBMIT_DIR", f"/{n}"), ("SLURM_ARRAY_TASK_ID", str(n)), (name, str(n))]
        for n in (1, 2)
    ]
    store(*(captured_job(n, environment=environment_bytes(run)) for n, run in enumerate(runs, 1)))

    shown = difference(*ArchivedJob.objects.order_by("job_id"), user=shifter, exact=False)

    assert [change.name for change in shown.changes] == [name]
    assert {change.name for change in shown.noise} == {"SLURM_SUBMIT_DIR", "SLURM_ARRAY_TASK_ID"}


def address(archived, **query):
    return reverse("archive:diff", args=[archived.pk]), query


def test_page_compares_with_the_last_success_of_the_stage(client, pair, liaison):
    client.force_login(liaison)

    response = client.get(*address(pair["2"]))
    page = response.content.decode()

    assert response.context["other"].job_id == "1"
    assert "the last success of NOVA-0231 sim" in page
    assert "<del>8G</del>" in page
    assert "<ins>4G</ins>" in page
    assert "<script>alert" not in page
    assert "unchanged lines" in page
    assert "2 lines differ" in page
    assert [change.name for change in response.context["difference"].changes] == ["MODE", "TOKEN"]
    assert [change.name for change in response.context["difference"].noise] == [
        "OUT",
        "SLURM_JOB_ID",
    ]


def test_comparison_leads_back_to_the_job_that_it_was_opened_from(client, pair, liaison, shifter):
    archived = pair["2"]
    task = {"job_id": f"{archived.job_id}_7", "spool_id": archived.job_id}
    jobs.store(
        archived.cluster,
        jobs.failed(1, **task),
        jobs.failed(2, job_id="99", spool_id="99"),
    )
    job = Job.objects.get(job_id=task["job_id"])
    other = Job.objects.get(job_id="99")
    client.force_login(shifter)
    page = client.get(*address(archived, of=job.pk)).content.decode()
    assert f'<a href="/jobs/{job.pk}/">Job {task["job_id"]}</a>' in page
    assert f'name="of" value="{job.pk}"' in page
    for of in (other.pk, "x", ""):
        page = client.get(*address(archived, of=of)).content.decode()
        assert 'name="of"' not in page, "the script is not that of this job"


def test_tasks_of_the_same_array_that_completed_are_named_first(client, pair, shifter):
    archived = pair["2"]
    array = {"spool_id": archived.job_id, "submitted_at": archived.submitted_at}
    failed_task, *_ = jobs.store(
        archived.cluster,
        jobs.failed(1, job_id=f"{archived.job_id}_7", **array),
        jobs.record(2, job_id=f"{archived.job_id}_8", **array),
        jobs.record(3, job_id=f"{archived.job_id}_9", **array),
        jobs.record(4, job_id="99", spool_id="99"),
    )
    client.force_login(shifter)
    text = "completed with this very script"
    page = " ".join(client.get(*address(archived, of=failed_task.pk)).content.decode().split())
    assert f"2 jobs of the same array</a> {text}" in page
    assert f"/jobs/?job={archived.job_id}&amp;state=completed" in page
    assert text not in client.get(*address(archived)).content.decode()


def test_every_byte_counts_if_asked_for(client, pair, liaison):
    client.force_login(liaison)

    shown = client.get(*address(pair["2"], exact="1", all="1")).context["difference"]

    assert [change.name for change in shown.changes] == ["MODE", "OUT", "SLURM_JOB_ID", "TOKEN"]


def test_identical_jobs_are_said_to_be(client, pair, liaison):
    client.force_login(liaison)

    page = client.get(*address(pair["4"], other=pair["1"].pk)).content

    assert b"Scripts are identical" in page
    assert b"Environments are identical" in page


def test_other_job_is_named_or_selected(client, pair, shifter, liaison):
    client.force_login(shifter)
    named = client.get(*address(pair["2"], cluster="alps", job="3"))
    assert named.context["other"].job_id == "3"
    assert b"No such job" in client.get(*address(pair["2"], cluster="alps", job="99")).content
    assert b"No job to compare with" in client.get(*address(pair["1"])).content

    two = client.get(
        reverse("archive:compare"), {"id": [pair["2"].pk, pair["1"].pk], "user": "ana"}
    )
    assert two["Location"] == f"{reverse('archive:diff', args=[pair['2'].pk])}?other={pair['1'].pk}"
    one = client.get(reverse("archive:compare"), {"id": [pair["2"].pk], "user": "ana"})
    assert one["Location"] == f"{reverse('archive:jobs')}?user=ana"

    client.force_login(liaison)
    assert client.get(*address(pair["2"], other=pair["3"].pk)).status_code == 404
    assert b"No such job" in client.get(*address(pair["2"], cluster="alps", job="3")).content


def test_environments_are_compared_for_those_who_may_see_both(client, pair, nova):
    client.force_login(people.person("visitor", ("shifter", nova)))

    response = client.get(*address(pair["2"]))

    assert response.context["difference"].changes is None
    assert b"fast" not in response.content
    assert b"<del>8G</del>" in response.content


def test_api_returns_the_same(client, pair, liaison, nova):
    client.force_login(liaison)
    url = reverse("api:archived-job-diff", args=[pair["2"].pk])

    found = client.get(url).json()

    assert (found["left"], found["right"]) == (pair["1"].pk, pair["2"].pk)
    assert [(line["left_text"], line["right_text"]) for line in found["lines"]] == [
        ("#SBATCH --mem=8G", "#SBATCH --mem=4G"),
        ("step 20", "<script>alert(1)</script>"),
    ]
    assert [change["name"] for change in found["variables"]] == ["MODE", "TOKEN"]
    assert client.get(url, {"other": pair["4"].pk}).json()["left"] == pair["4"].pk
    assert client.get(url, {"other": pair["3"].pk}).status_code == 404
    assert client.get(url, {"other": "x"}).status_code == 400

    client.force_login(people.person("visitor", ("shifter", nova)))
    assert client.get(url).json()["variables"] is None


def test_diff_of_damaged_scripts_says_so(client, pair, liaison):
    pair["1"].script.__class__.objects.filter(pk=pair["1"].script_id).update(data=b"no")
    client.force_login(liaison)

    page = client.get(*address(pair["2"])).content.decode()

    assert re.search(r"<b>Content damaged</b>", page)
