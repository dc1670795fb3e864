"""A real Slurm takes jobs as fast as sbatch gives them; capture is killed in the middle."""

import hashlib
import subprocess

import pytest

from tests.archive.conftest import archived, wait_for

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("slurm"), pytest.mark.timeout(900)]

JOBS = 800
SUBMITTERS = 4


def test_burst_with_a_kill_is_archived_whole_and_once(slurm, portal):
    submit = [
        "xargs",
        "-P",
        str(SUBMITTERS),
        "-I{}",
        "sbatch",
        "--hold",
        "--parsable",
        "-J",
        "burst",
        "--wrap",
        "echo {}",
    ]
    burst = None
    try:
        with portal.capturing(slurm.state_dir) as capture:
            burst = subprocess.Popen(
                submit,
                env=slurm.environment,
                cwd=slurm.jobs_dir,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            burst.stdin.write("".join(f"{number}\n" for number in range(JOBS)).encode())
            burst.stdin.close()
            wait_for(lambda: archived() > JOBS // 4, seconds=200)
            capture.kill()
        submitted = burst.stdout.read().decode().split()
        assert (burst.wait(), len(submitted)) == (0, JOBS)

        portal.capture_once(slurm.state_dir)

        spooled = {job_id: sha256_in_spool(slurm, job_id) for job_id in submitted}
    finally:
        if burst:
            burst.kill()
            burst.stdout.close()
            burst.wait()
        slurm.run("scancel", "--name=burst")
    listed = [job for job in portal.listed() if job["job_id"] in spooled]
    assert len(listed) == JOBS
    assert {
        job["job_id"]: (job["script_sha256"], job["environment_sha256"]) for job in listed
    } == spooled
    portal.archive("verify")


def sha256_in_spool(slurm, job_id):
    script = (slurm.job_dir(job_id) / "script").read_bytes()
    environment = (slurm.job_dir(job_id) / "environment").read_bytes()
    return hashlib.sha256(script.removesuffix(b"\0")).hexdigest(), hashlib.sha256(
        environment
    ).hexdigest()
