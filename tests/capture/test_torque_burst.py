"""A burst of Torque jobs through the capture process, which is killed in the middle."""

import hashlib
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from django.utils import timezone

from apps.archive.models import ArchivedJob
from apps.clusters.schedulers.environment import pack
from tests.archive.conftest import archived, wait_for
from tests.factories.torque_spool import TorqueJob, TorqueServer, do

JOBS = 800
WRITERS = 4
KEEP_COMPLETED = timedelta(seconds=1)


def torque_job(number: int) -> TorqueJob:
    """Return one of every kind in turn: several chunks, bytes that are no text, nothing at all,
    arrays.
    """
    body = b"#!/bin/sh\n#PBS -N events\r\n./run --seed %d\n# caf\xe9\n" % number
    return TorqueJob(
        number,
        chunks=[body * 40 for _ in range(number % 4)] or [b""],
        variables=[(b"PBS_O_HOME", b"/home/ana"), (b"SEED", b"%d, or 'more'" % number)],
        tasks=3 if number % 50 == 0 else 0,
        created_at=1_780_000_000 + number,
    )


def run(server: TorqueServer, job: TorqueJob) -> None:
    for _ in server.submission(job):
        time.sleep(0.0005)
    do(server.life(job))


@pytest.mark.slow
@pytest.mark.parametrize("subdirectories", [False, True], ids=["flat", "subdirectories"])
def test_kill_in_a_burst_loses_and_doubles_nothing(portal, tmp_path, subdirectories) -> None:
    server = TorqueServer(tmp_path / "torque", subdirectories=subdirectories)
    jobs = [torque_job(number) for number in range(1, JOBS + 1)]
    torque = (server.jobs, "--scheduler", "torque")

    with ThreadPoolExecutor(WRITERS) as writers:
        with portal.capturing(*torque) as first:
            done = [writers.submit(run, server, job) for job in jobs]
            wait_for(lambda: archived() > JOBS // 5, seconds=120)
            first.kill()
        for job in done:
            job.result(timeout=120)
    portal.capture_once(*torque, "--patience-seconds", 50)

    digests = {
        job.id: (
            hashlib.sha256(job.script).hexdigest(),
            hashlib.sha256(pack(job.variables)).hexdigest(),
        )
        for job in jobs
    }
    listed = portal.listed()
    assert {
        job["job_id"]: (job["script_sha256"], job["environment_sha256"]) for job in listed
    } == digests
    assert len(listed) == ArchivedJob.objects.count() == JOBS
    assert set(ArchivedJob.objects.values_list("user", "caveat")) == {("ana", "")}


@pytest.mark.slow
def test_jobs_that_are_soon_purged_are_captured(portal, tmp_path, settings) -> None:
    """300 jobs, each gone a second after its last change of state; a secret in each."""
    server = TorqueServer(tmp_path / "torque")
    ended: list[tuple[float, TorqueJob]] = []
    settings.CAPTURE_MASK_NAMES, settings.MASKING_KEY = "TOKEN", "k" * 50

    with portal.capturing(server.jobs, "--scheduler", "torque"):
        for number in range(1, 301):
            job = TorqueJob(number, variables=[(b"TOKEN", b"s3cret-%d" % number), (b"A", b"1")])
            run(server, job)
            ended.append((time.monotonic() + KEEP_COMPLETED.total_seconds(), job))
            while ended[0][0] < time.monotonic():
                do(server.purge(ended.pop(0)[1]))
        wait_for(lambda: archived() == 300)

    assert (
        ArchivedJob.objects.filter(submitted_at__lt=timezone.now(), masked_names=["TOKEN"]).count()
        == 300
    )
    out = portal.archive("show", ended[-1][1].id, "--cluster", "alps", "--environment")
    assert b"s3cret" not in out
    assert b"TOKEN=<masked:" in out
