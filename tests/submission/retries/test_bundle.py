"""Retries of jobs that the portal did not submit: a tar for their owner,
which never makes a second copy.
"""

import io
import subprocess
import tarfile
from datetime import timedelta

import pytest

from apps.archive.models import ArchivedJob
from apps.clusters.schedulers.environment import pack
from apps.core.errors import InvalidTransition
from apps.diagnosis.models import Verdict
from apps.submission.domain.retries.bundle import retry_bundle
from tests.factories import archive, clusters, jobs
from tests.factories.bundles import unpack
from tests.factories.requests import AT
from tests.factories.verdicts import verdict

VARIABLES = [
    (b"HOME", b"/home/alice"),
    (b"TOKEN", b"<masked:0123456789abcdef>"),
    (b"SLURM_JOB_ID", b"77"),
]
SCRIPT = b"#!/bin/bash\n#SBATCH --time=1\nreco $1\n"
LATER = AT + timedelta(minutes=10)
#: Stand-ins for Slurm's commands: sbatch notes its arguments, squeue prints what the file `queue`
#: names.
SBATCH = '#!/bin/sh\necho "$@" >> "$SLURM_TEST/calls"\necho 901\n'
SQUEUE = (
    '#!/bin/sh\nfor option; do case $option in --name=*|--jobs=*) grep -x -- "${option#--*=}" '
    '"$SLURM_TEST/queue";;'
    " esac; done\ntrue\n"
)


@pytest.fixture
def lost(nova):
    """Make a failed job that was captured but not submitted by the portal; return its verdict."""

    def make(number: int = 77, *, task: str = "_3", captured: bool = True, **fields) -> Verdict:
        cluster = clusters.cluster("alps", "slurm")
        one = archive.captured_job(
            number,
            cluster="alps",
            script=SCRIPT,
            environment=pack(VARIABLES),
            arguments="a; $(touch evil)",
        )
        if captured:
            archive.store(one)
        values = {
            "state": "failed",
            "submitted_at": one.submitted_at,
            "job_id": f"{number}{task}",
            **fields,
        }
        (job,) = jobs.store(cluster, jobs.record(number, **values))
        type(job).objects.filter(pk=job.pk).update(experiment=nova)
        job.refresh_from_db()
        return verdict(job, at=LATER)

    return make


def unpacked(content, path):
    unpack(content, path)
    return path / "retry"


@pytest.fixture
def slurm(tmp_path):
    """Run a program of the bundle where sbatch and squeue are stand-ins."""
    for name, text in (("sbatch", SBATCH), ("squeue", SQUEUE)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "queue").write_text("")
    (tmp_path / "calls").write_text("")

    def run(program):
        environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_TEST": str(tmp_path)}
        done = subprocess.run(
            [program], env=environment, capture_output=True, text=True, check=True
        )
        return done.stdout + done.stderr, (tmp_path / "calls").read_text().splitlines()

    return run


def test_jobs_are_submitted_once_as_they_were(lost, approver, tmp_path, slurm):
    where = unpacked(
        retry_bundle(verdicts=[lost(), lost(78, task="")], by=approver, at=LATER), tmp_path
    )
    first = where / "alps-77_3"
    assert (first / "script.sh").read_bytes() == SCRIPT
    assert (first / "environment").read_bytes() == b"HOME=/home/alice\0"
    assert (first / "environment").stat().st_mode & 0o777 == 0o600
    said, calls = slurm(where / "submit-all.sh")
    assert "secrets are not archived, put them into environment: TOKEN" in said
    assert len(calls) == 2
    assert "--array=3" in calls[0]
    assert "--job-name=retry.alps.77_3" in calls[0]
    assert calls[0].endswith("script.sh a; $(touch evil)")
    assert "--array" not in calls[1]
    assert not list(where.rglob("evil"))
    said, calls = slurm(where / "submit-all.sh")
    assert "77_3: submitted before as 901" in said
    assert len(calls) == 2


@pytest.mark.parametrize("running", ["77_3", "retry.alps.77_3"])
def test_no_second_copy_of_a_job_that_runs(lost, approver, tmp_path, slurm, running):
    where = unpacked(retry_bundle(verdicts=[lost()], by=approver, at=LATER), tmp_path)
    (tmp_path / "queue").write_text(f"{running}\n")
    said, calls = slurm(where / "submit-all.sh")
    assert "is queued or runs" in said
    assert calls == []
    (tmp_path / "queue").write_text("")
    assert len(slurm(where / "submit-all.sh")[1]) == 1


def test_what_cannot_be_retried_is_left_out_with_the_reason(
    lost, approver, tmp_path, other_liaison
):
    good, uncaptured, restarted = lost(), lost(78, captured=False), lost(79, state="node_fail")
    where = unpacked(
        retry_bundle(verdicts=[good, uncaptured, restarted], by=approver, at=LATER), tmp_path
    )
    readme = (where / "README").read_text()
    assert "78_3 on alps: its script was not captured" in readme
    assert "79_3 on alps: its scheduler may start it again" in readme
    assert sorted(each.name for each in where.iterdir()) == ["README", "alps-77_3", "submit-all.sh"]
    later = retry_bundle(
        verdicts=[restarted], by=approver, at=restarted.ended_at + timedelta(days=2)
    )
    assert (unpacked(later, tmp_path / "later") / "alps-79_3").is_dir()
    with pytest.raises(InvalidTransition, match="you may not see its environment"):
        retry_bundle(verdicts=[good], by=other_liaison, at=LATER)


def test_page_of_the_dry_run_and_the_api_have_the_bundle(lost, approver, client):
    job = lost().job
    client.force_login(approver)
    address = f"/retries/job/{job.pk}/?list=not-sent"
    assert "format=tar" in client.get(address).text
    sent = client.get(f"{address}&format=tar")
    assert sent.headers["Content-Type"] == "application/x-tar"
    with tarfile.open(fileobj=io.BytesIO(sent.content)) as tar:
        assert "retry/alps-77_3/script.sh" in tar.getnames()
    by_tool = client.get(f"/api/v1/retry-batches/bundle/?kind=job&id={job.pk}")
    assert by_tool.headers["Content-Type"] == "application/x-tar"
    with tarfile.open(fileobj=io.BytesIO(by_tool.content)) as tar:
        assert "retry/alps-77_3/submit.sh" in tar.getnames()


def test_bundle_is_bounded_in_bytes(lost, approver, tmp_path, monkeypatch):
    verdicts = [lost(), lost(78), lost(79)]
    job = ArchivedJob.objects.get(job_id="77")
    limit = 2 * (job.script_bytes + job.environment_bytes)
    monkeypatch.setattr("apps.submission.domain.retries.bundle.MOST_BYTES", limit)
    where = unpacked(retry_bundle(verdicts=verdicts, by=approver, at=LATER), tmp_path)
    assert (where / "alps-78_3").is_dir()
    assert not (where / "alps-79_3").exists()
    assert "79_3 on alps: a bundle has at most 200 jobs and" in (where / "README").read_text()
