"""`archive fill`: a sink that was added later gets what the store has, each job once,
whatever stops it.
"""

import io
from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command

from apps.archive.domain.store import backfill
from apps.archive.domain.store.backfill import jobs_after, read_batches
from apps.archive.models import ArchivedJob, Blob
from apps.archive.sinks.files import FilesSink
from tests.contracts.sink import SUBMITTED, a_job
from tests.factories.archive import store

pytestmark = pytest.mark.django_db


@pytest.fixture
def root(tmp_path, settings):
    settings.VAR_DIR = tmp_path / "var"
    return tmp_path / "archive"


@pytest.fixture
def fill(root):
    def run(*arguments):
        out, err = io.StringIO(), io.StringIO()
        call_command(
            "archive", "fill", "--to", f"files://{root}", *arguments, stdout=out, stderr=err
        )
        return out.getvalue() + err.getvalue()

    return run


@pytest.fixture
def written(monkeypatch):
    """Ids of the jobs that were given to the files sink, in batches."""
    given, write = [], FilesSink.write

    def note(self, jobs):
        given.append([job.job_id for job in jobs])
        return write(self, jobs)

    monkeypatch.setattr(FilesSink, "write", note)
    return given


def scripts(root):
    return sorted(path.name for path in root.glob("*/*/*_script"))


def test_what_comes_out_is_what_was_stored(root):
    jobs = [
        a_job(
            1,
            script=b"\xff\0",
            description=b"<job/>",
            user="ana",
            masked_names=("A",),
            request_key="N-1",
            caveat="c",
        ),
        a_job(2, arguments="a b", stage="sim", account="x", name="n", sender="farm-1"),
    ]
    store(*jobs)
    (batch,) = read_batches(jobs_after(last=0))
    assert (batch.jobs, batch.damaged, batch.last) == (
        jobs,
        [],
        ArchivedJob.objects.latest("pk").pk,
    )


def test_batches_are_bounded_by_number_and_size(monkeypatch):
    monkeypatch.setattr(backfill, "BATCH_JOBS", 3)
    monkeypatch.setattr(backfill, "BATCH_BYTES", 10_000)
    store(
        *(
            a_job(number, script=b"x" * (20_000 if number == 4 else 10) + b"%d" % number)
            for number in range(1, 9)
        )
    )
    assert [[job.job_id for job in batch.jobs] for batch in read_batches(jobs_after(last=0))] == [
        ["1", "2", "3"],
        ["4"],
        ["5", "6", "7"],
        ["8"],
    ]


def test_cluster_and_date_choose(fill, root):
    store(a_job(1), a_job(2, cluster="jura"), a_job(3, submitted_at=SUBMITTED - timedelta(days=2)))
    assert "1 jobs are in files://" in fill("--cluster", "alps", "--since", "2026-11-19")
    assert scripts(root) == ["job.1_script"]


def test_started_again_it_goes_on_where_it_was(fill, root, written, monkeypatch):
    monkeypatch.setattr(backfill, "BATCH_JOBS", 2)
    store(*(a_job(number) for number in range(1, 6)))
    root.mkdir()
    aside = root.with_name("aside")

    def fail_once(self, jobs, write=FilesSink.write):
        if "3" in [job.job_id for job in jobs]:
            root.rename(aside)
            root.write_text("no directory")
        return write(self, jobs)

    with monkeypatch.context() as patch:
        patch.setattr(FilesSink, "write", fail_once)
        with pytest.raises(CommandError, match="Run the same command again"):
            fill("--patience-seconds", "0")
    root.unlink()
    aside.rename(root)
    written.clear()

    assert "3 jobs are in" in fill()
    assert written == [["3", "4"], ["5"]]
    assert scripts(root) == [f"job.{number}_script" for number in range(1, 6)]
    assert "0 jobs are in" in fill()
    store(a_job(6))
    assert "1 jobs are in" in fill()
    assert "6 jobs are in" in fill("--again")
    assert len(scripts(root)) == 6


def test_sink_that_is_away_for_a_moment_is_waited_for(fill, root, monkeypatch):
    store(a_job(1))
    root.write_text("no directory")
    monkeypatch.setattr("time.sleep", lambda _: root.exists() and root.unlink())
    assert "1 jobs are in" in fill()


def test_refused_and_damaged_jobs_are_named_and_cost_the_others_nothing(fill, root):
    store(a_job(1), a_job(2), a_job(3))
    Blob.objects.filter(pk=ArchivedJob.objects.get(job_id="2").script_id).update(data=b"x")
    (root / "alps/20261120").mkdir(parents=True)
    for stem in ("job.3", "job.3~20261120T235958.123456Z"):
        (root / f"alps/20261120/{stem}_script").mkdir()
    with pytest.raises(CommandError, match="2 jobs are not"):
        fill()
    assert (root / "alps/20261120/job.1_script").read_bytes() == a_job(1).script


def test_bad_url_is_said_so():
    with pytest.raises(CommandError, match="no period"):
        call_command("archive", "fill", "--to", "files:///x?period=never")
