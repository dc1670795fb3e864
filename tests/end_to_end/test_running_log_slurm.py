"""The log of a task that runs on a real Slurm: found by asking Slurm,
followed until the task ends.
"""

import time

import pytest
from django.core.cache import cache
from django.utils import timezone

from apps.archive.models import ArchivedJob
from apps.clusters.domain import ensure_cluster
from apps.diagnosis.domain.reading.running_logs import find_running_log, running_log
from tests.factories import people
from tests.factories.archive import archive_all
from tests.factories.capture import capture_once

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.xdist_group("slurm"),
    pytest.mark.django_db(transaction=True),
    pytest.mark.timeout(300),
]


def test_log_of_a_running_task_is_followed(slurm, settings, tmp_path):
    settings.LOG_ROOTS = [slurm.jobs_dir]
    cache.clear()
    options = {"conf": str(slurm.conf), "log_owners": "root"}
    cluster = ensure_cluster(
        name=slurm.cluster, scheduler="slurm", by="test", at=people.LONG_AGO, options=options
    )
    go_on = tmp_path / "go-on"
    script = (
        f"#!/bin/sh\necho started $SLURM_ARRAY_TASK_ID\nwhile ! test -e {go_on}; do sleep 0.1; "
        "done\necho goes on\n"
    )
    # not in the script, so that only Slurm knows it
    array = slurm.submit(
        script, "--array=7", f"--output={slurm.jobs_dir}/of-%x-%A_%a.log", "--job-name=followed"
    )
    capture_once(
        cluster=cluster.name,
        scheduler="slurm",
        spool=slurm.state_dir,
        journal=tmp_path / "journal",
    )
    archive_all()
    archived, job_id = ArchivedJob.objects.get(job_id=array), f"{array}_7"
    path = slurm.jobs_dir / f"of-followed-{job_id}.log"

    def follow(text, before=None):
        deadline = time.monotonic() + 180
        while text not in (path.read_text() if path.exists() else ""):
            assert time.monotonic() < deadline, slurm.scontrol("show", "job", array)
            time.sleep(0.1)
        find_running_log(archived_id=archived.pk, job_id=job_id, at=timezone.now())
        log = running_log(archived, job_id=job_id, before=before)
        return log, [shown.line.text for shown in log.lines]

    first, lines = follow("started")
    assert (first.path, first.problem, lines) == (str(path), "", ["started 7"])
    go_on.touch()
    second, lines = follow("goes on", before=first.seen)
    assert (second.notice, lines) == ("", ["started 7", "goes on"])
    slurm.wait_ended([array])
