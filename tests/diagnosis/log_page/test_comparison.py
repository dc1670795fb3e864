"""A failed job's log beside that of a success: which job is chosen, and where the logs part."""

from datetime import timedelta

import pytest

from apps.diagnosis.domain.log_page.alignment import align, mask_line
from apps.diagnosis.domain.log_page.comparison import (
    Divergence,
    ShownFold,
    ShownRow,
    compare_logs,
    siblings_of,
)
from apps.diagnosis.engine.evidence.novelty import Templates
from apps.diagnosis.enums import Stream
from tests.pages import text_of

EVENTS = [f"Begin processing the {n}th record. run: 3{n}\n" for n in range(200)]
FAILED = f"""==> 2026-11-22 06:20:48 phase 1/2: reco
{"".join(EVENTS)}==> 2026-11-22 09:12:41 phase 2/2: declare output
samweb declare-file r17_s04.root.json
HTTP error: 503 Service Unavailable: POST https://samweb.example.org:8483/sam/api/files
retry 1 of 5 in 8 s
09:16:42 cleaning up
job script exit status 65
"""
GOOD = f"""==> 2026-11-22 05:20:48 phase 1/2: reco
{"".join(EVENTS[:90])}==> 2026-11-22 08:51:52 phase 2/2: declare output
samweb declare-file r17_s03.root.json
HTTP 201: file id 99410233 declared
08:51:58 cleaning up
job script exit status 0
"""


@pytest.fixture
def family(make_job, at):
    """A failed job, and three that completed: near in time, on the same host, of another stage."""
    same = {"request_key": "NOVA-0001", "stage": "reco"}
    failed = make_job(1, log=FAILED, host="wn-1", **same)
    done = {"state": "completed", "exit_code": 0}
    near = make_job(
        2, log=GOOD, host="wn-2", ended_at=failed.ended_at - timedelta(minutes=1), **same, **done
    )
    host = make_job(
        3, log=GOOD, host="wn-1", ended_at=failed.ended_at - timedelta(hours=2), **same, **done
    )
    make_job(4, log=GOOD, host="wn-1", request_key="NOVA-0001", stage="merge", **done)
    return failed, near, host


def test_success_on_the_same_host_is_compared_and_the_logs_part_at_the_error(family, shifter):
    failed, near, host = family
    assert [sibling.job for sibling in siblings_of(failed, user=shifter)] == [host, near]
    comparison = compare_logs(failed, user=shifter, stream=Stream.STDOUT)
    assert (comparison.other, comparison.problem, comparison.whole) == (host, "", True)
    divergence = next(row for row in comparison.rows if isinstance(row, Divergence))
    assert FAILED.split("\n")[divergence.right - 1].startswith("HTTP error: 503")
    assert divergence.phase == "declare output"
    assert [
        row.row.right_text for row in comparison.rows if isinstance(row, ShownRow) and row.is_new
    ][-1].endswith("65")
    assert isinstance(comparison.rows[0], ShownFold)
    assert comparison.phases[0].name == "reco"
    assert compare_logs(failed, user=shifter, stream=Stream.STDOUT, chosen=near).other == near


def test_what_cannot_be_compared_is_said(family, make_job, shifter, roots, client):
    failed = family[0]
    (roots / "3.out").unlink()
    assert "no such file" in compare_logs(failed, user=shifter, stream=Stream.STDOUT).problem
    alone = make_job(9, log="x\n", request_key="NOVA-0002", stage="gen", name="alone")
    assert "has completed yet" in compare_logs(alone, user=shifter, stream=Stream.STDOUT).problem
    client.force_login(shifter)
    for job, query in (
        (failed, {}),
        (alone, {}),
        (failed, {"with": "999999"}),
        (failed, {"lines": "all"}),
    ):
        assert client.get(f"/jobs/{job.pk}/log/compare/", query).status_code == 200


def test_masked_lines_keep_what_tells_a_failure_apart():
    assert mask_line("exit status 65", "") != mask_line("exit status 0", "")
    assert mask_line("HTTP error: 503 for 4711", "") == mask_line("HTTP error: 503 for 12", "")
    assert align(["job 4711 done"], ["job 4712 done"], "4711", "4712")[0][0].kind == "equal"


SAME = [
    ("Begin processing the 953rd record. run: 5", "Begin processing the 501st record. run: 34"),
    ("took .5 s, 1.5e-05 of 12", "took 12.25 s, 3e+02 of 7"),
    (
        "RootInput(read)     0.00123       0.0031      1e-05",
        "RootInput(read)     12.5    0.1     0.2",
    ),
    ("shift -0.5 mm", "shift 0.7 mm"),
    ("progress 5%", "progress 12.5%"),
]


def test_a_debug_rerun_does_not_part_from_its_test_where_the_stage_is_named():
    left = mask_line("user opsportal, MINERVA simulation.test, v22r1, testbeam.fcl", "")
    right = mask_line("user opsportal, MINERVA simulation.debug, v22r1, testbeam.fcl", "")
    assert left == right
    assert mask_line("simulation.tested", "") != mask_line("simulation", "")


def test_a_failed_test_is_compared_with_a_test_that_completed_or_with_its_stage(
    family, make_job, shifter
):
    same = {"request_key": "NOVA-0001", "stage": "reco.test"}
    failed = make_job(7, log=FAILED, **same)
    assert {sibling.job for sibling in siblings_of(failed, user=shifter)} == {*family[1:]}
    done = make_job(8, log=GOOD, state="completed", exit_code=0, **same)
    assert [sibling.job for sibling in siblings_of(failed, user=shifter)] == [done]


@pytest.mark.parametrize(("left", "right"), SAME)
def test_lines_that_differ_in_ordinals_decimals_and_widths_are_the_same(left, right):
    assert mask_line(left, "") == mask_line(right, "")
    templates = Templates()
    assert templates.hash_of(left.encode()) == templates.hash_of(right.encode())


def test_lines_that_differ_in_words_are_not_the_same():
    assert mask_line("chi2 nan", "") != mask_line("chi2 0.7", "")
    assert mask_line("read 3 of 4", "") != mask_line("wrote 3 of 4", "")


def test_a_debug_rerun_is_compared_whose_log_path_only_accounting_names(
    family, make_job, shifter, roots, client
):
    failed = family[0]
    rerun = make_job(
        5,
        log=GOOD,
        log_path="",
        work_dir=str(roots),
        stdout_path="5.out",
        request_key="NOVA-0001",
        stage="reco.debug",
        state="completed",
        exit_code=0,
        host="wn-1",
    )
    comparison = compare_logs(failed, user=shifter, stream=Stream.STDOUT, chosen=rerun)
    assert (comparison.other, comparison.problem) == (rerun, "")
    assert any(isinstance(row, Divergence) for row in comparison.rows)
    client.force_login(shifter)
    assert "Log path unknown" not in client.get(f"/jobs/{rerun.pk}/log/").content.decode()
    facts = text_of(client.get(rerun.get_absolute_url()))
    assert f'<span class="mono">{roots}/5.out</span> <small>Accounting</small>' in facts
