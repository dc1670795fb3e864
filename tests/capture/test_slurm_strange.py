"""A Slurm that uses ids again and edits what is submitted: each job keeps its own script."""

import os
import shutil
import signal
import subprocess
from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone

from apps.archive.domain.store.contents import archived_job_for, read_blob
from apps.archive.domain.verification import CopyResult, check_copies
from apps.archive.models import ArchivedJob
from apps.clusters.models import Cluster
from apps.jobs.domain.collection.accounting import collect_again, collect_finished_jobs
from apps.jobs.models import Job
from tests.archive.conftest import archived, wait_for
from tests.programs.slurm_server import BIN, running_slurm

# Beside the tests of the Slurm that others share, which make the longest group.
pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("own slurm"), pytest.mark.timeout(900)]

FIRST_ID, MAX_ID = 20, 24  # the last one is not given out
# slurmctld sends a script to accounting while it remembers the job: this one stays until it was
# sent.
SAME = "same\nuntil [ -e recorded ]; do sleep 0.1; done"
PLUGIN = """
edited = 0
function slurm_job_submit(job, partitions, uid)
  if job.name == "edited" then
    edited = edited + 1
    job.script = job.script .. "# edited " .. edited .. "\\n"
  end
  return slurm.SUCCESS
end
function slurm_job_modify(change, job, partitions, uid) return slurm.SUCCESS end
return slurm.SUCCESS
"""


@pytest.fixture(scope="module")
def strange():
    options = [
        f"--set=FirstJobId={FIRST_ID}",
        f"--set=MaxJobId={MAX_ID}",
        "--set=JobSubmitPlugins=lua",
    ]
    with running_slurm(
        "--nodes=1", "--min-job-age=2", *options, etc={"job_submit.lua": PLUGIN}
    ) as slurm:
        yield slurm


def restart_with_new_state(slurm):
    """Do as after the loss of StateSaveLocation: slurmctld begins anew."""
    pid_file = slurm.directory / "run" / "slurmctld.pid"
    os.kill(int(pid_file.read_text()), signal.SIGTERM)
    wait_for(
        lambda: not pid_file.exists() or not Path("/proc", pid_file.read_text().strip()).exists()
    )
    shutil.rmtree(slurm.state_dir)
    slurm.state_dir.mkdir(0o700)
    subprocess.run(
        [BIN / "slurm-up", slurm.directory], check=True, timeout=180, capture_output=True
    )


def submit(slurm, text, *options):
    return slurm.submit(f"#!/bin/sh\n# {text}\n", *options)


def ended(slurm):
    """Return the endings that accounting has; slurmctld forgets these jobs too soon to be asked."""
    rows = slurm.run("sacct", "-nPXD", "-S", "now-1hour", "-o", "State,WorkDir").splitlines()
    return [row for row in rows if row.startswith("COMPLETED|/")]


def test_ids_used_again_and_edited_scripts_keep_what_ran(strange, portal):
    since = timezone.now().replace(microsecond=0)
    submitted = []
    with portal.capturing(strange.state_dir) as capture:
        assert not list(strange.state_dir.glob("hash.*"))  # they come with the first jobs
        submitted += [(submit(strange, number), f"#!/bin/sh\n# {number}\n") for number in range(2)]
        for number in (1, 2):
            job_id = submit(strange, SAME, "--job-name=edited")
            submitted.append((job_id, f"#!/bin/sh\n# {SAME}\n# edited {number}\n"))
            wait_for(
                lambda: SAME in strange.run("sacct", "-B", "-j", submitted[-1][0]), seconds=120
            )
        (strange.jobs_dir / "recorded").touch()
        wait_for(lambda: not strange.job_dir(submitted[0][0]).exists(), seconds=120)
        submitted.append((submit(strange, "after the wrap"), "#!/bin/sh\n# after the wrap\n"))
        wait_for(lambda: len(ended(strange)) == len(submitted), seconds=120)
        restart_with_new_state(strange)
        submitted.append((submit(strange, "new state"), "#!/bin/sh\n# new state\n"))
        wait_for(lambda: len(ended(strange)) == len(submitted), seconds=120)
        wait_for(lambda: archived() == len(submitted))
        capture.terminate()
        capture.wait(60)

    rows = list(ArchivedJob.objects.order_by("submitted_at").select_related("script"))
    assert [(row.job_id, read_blob(row.script).decode()) for row in rows] == submitted
    assert [job_id for job_id, _ in submitted].count(str(FIRST_ID)) == 3

    cluster = Cluster.objects.get()
    cluster.options = {"conf": str(strange.conf), "cluster_name": "test"}
    cluster.save()
    collect_again(cluster=cluster, since=since - timedelta(seconds=5), at=timezone.now())
    assert collect_finished_jobs(
        cluster=cluster, at=timezone.now() + timedelta(seconds=5)
    ).new == len(submitted)
    linked = [archived_job_for(job) for job in Job.objects.order_by("submitted_at", "job_id")]
    assert {row.pk for row in linked} == {row.pk for row in rows}

    findings = check_copies(cluster=cluster, since=since, by="test", at=timezone.now())
    other = [finding.job_id for finding in findings if finding.kind is CopyResult.SCRIPT]
    # It keeps the first of equals.
    assert other == [job_id for job_id, script in submitted if "edited 2" in script]
