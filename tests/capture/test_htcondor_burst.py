"""Bursts of HTCondor jobs through capture, in this process and in one that is killed in the
middle.
"""

import hashlib
import shutil
import tempfile
import threading
import time
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone

from apps.archive.domain.links import link_jobs
from apps.archive.domain.store.contents import archived_job_for
from apps.archive.domain.store.jobs import store_jobs
from apps.archive.models import ArchivedJob
from apps.clusters.domain import ensure_cluster
from apps.clusters.schedulers.environment import pack
from apps.clusters.schedulers.htcondor.script import COPIED
from apps.clusters.schedulers.htcondor.spool import HTCondorSpool
from apps.jobs.domain.collection.accounting import collect_finished_jobs
from apps.jobs.models import Job
from tests.archive.conftest import archived, wait_for
from tests.factories.htcondor_spool import OWNER, SCRIPT, Schedd, banner, history_ad, v2
from tests.programs.hanging_server import hanging, readers_of

from .capturing import MemoryPortal, capture_of, running


@pytest.fixture
def home():
    """A directory that the jobs' owner may enter, with a script that is older than the jobs."""
    directory = Path(tempfile.mkdtemp(prefix="home-"))
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
def schedd(spool):
    return Schedd(spool)


@contextmanager
def capturing(spool, journal, **changes):
    portal = MemoryPortal()
    values = {"cluster": "mice", "scheduler": "htcondor"} | changes
    with running(capture_of(HTCondorSpool(spool), journal, portal, **values)) as capture:
        yield capture, portal


def submit(schedd, home, number, **values):
    """Submit a job with a script of its own."""
    script = home / f"{number}.sh"
    script.write_bytes(b"#!/bin/sh\n./simulate --seed %d\n" % number)
    schedd.submit(
        number, Cmd=script.name, Iwd=str(home), Environment=v2({"SEED": str(number)}), **values
    )


def test_jobs_are_captured_as_the_log_grows_and_is_replaced(schedd, home, journal, watch):
    with capturing(schedd.spool, journal, watch=watch) as (capture, portal):
        submit(schedd, home, 1)
        wait_for(lambda: len(portal.jobs) == 1)
        submit(schedd, home, 2)
        schedd.compact()
        submit(schedd, home, 3)
        wait_for(lambda: len(portal.jobs) == 3)
        status = capture.report()

    assert {job.job_id: job.script for job in portal.jobs} == {
        str(number): b"#!/bin/sh\n./simulate --seed %d\n" % number for number in (1, 2, 3)
    }
    assert {job.user for job in portal.jobs} == {OWNER}
    assert status.last_error == ""
    assert status.unreadable == {}


def test_a_file_server_that_hangs_keeps_no_other_job_waiting(schedd, home, journal):
    server = home / "server"
    server.mkdir(mode=0o755)
    with capturing(schedd.spool, journal) as (capture, portal):
        with hanging(server):
            for number in (1, 2):
                schedd.submit(number, Cmd="run.sh", Iwd=str(server))
            submit(schedd, home, 3)
            wait_for(lambda: [job.job_id for job in portal.jobs] == ["3"])
            wait_for(lambda: len(capture.report().unreadable) == 2)
            reasons = set(capture.report().unreadable.values())
        wait_for(lambda: not readers_of(server))  # no more job is told that it hangs
        (server / "run.sh").write_bytes(SCRIPT)
        submit(schedd, home, 4)  # which has the queue looked at again
        wait_for(lambda: {job.job_id for job in portal.jobs} >= {"1", "2", "4"})

    assert reasons == {f"{server}/run.sh: its file server does not answer"}
    assert [job.script for job in sorted(portal.jobs, key=lambda job: job.job_id)[:2]] == [
        SCRIPT
    ] * 2


def test_a_job_that_leaves_the_queue_at_once_is_captured(schedd, home, journal):
    with capturing(schedd.spool, journal) as (_, portal):
        for number in range(1, 51):
            submit(schedd, home, number)
            schedd.remove(number)
        wait_for(lambda: len(portal.jobs) == 50)


def test_what_is_captured_is_not_read_again_by_the_next_capture(schedd, home, journal):
    for number in (1, 2):
        submit(schedd, home, number)
    with capturing(schedd.spool, journal) as (_, portal):
        wait_for(lambda: len(portal.jobs) == 2)
    schedd.compact()
    with capturing(schedd.spool, journal) as (_, portal):
        submit(schedd, home, 3)
        wait_for(lambda: portal.jobs)

    assert [job.job_id for job in portal.jobs] == ["3"]


def test_secrets_are_masked_before_they_are_kept(schedd, journal):
    directory = schedd.spool / "1"
    directory.mkdir()
    (directory / "condor_submit.1.digest").write_bytes(b"arguments=$(item) TOKEN=s3cret-2\n")
    schedd.submit(
        1,
        Environment=v2({"TOKEN": "s3cret'text", "A": "1"}),
        Args='TOKEN=s3cret-2 TOKEN="s3cret-3"',
        JobMaterializeDigestFile="condor_submit.1.digest",
    )

    with capturing(schedd.spool, journal) as (_, portal):
        wait_for(lambda: portal.jobs)

    (job,) = portal.jobs
    assert job.masked_names == ("TOKEN",)
    assert "s3cret" not in repr(job)


def test_secrets_in_plenty_do_not_keep_capture_busy(schedd, journal):
    arguments = " ".join(f"TOKEN=s3cret-{n}" for n in range(20_000))
    schedd.submit(1, Args=arguments, Environment=v2({"A": "1" * 60_000}))

    with capturing(schedd.spool, journal) as (_, portal):
        wait_for(lambda: portal.jobs, seconds=10)

    (job,) = portal.jobs
    assert job.description.startswith(b"left out: ")
    assert "s3cret" not in repr(job)


@pytest.mark.django_db
def test_accounting_finds_what_was_captured(schedd, home, journal):
    """Two jobs of a submission: both have its script, its stage,
    and the request that its environment claims.
    """
    at = timezone.now() - timedelta(minutes=5)
    times = dict.fromkeys(("QDate", "JobCurrentStartDate", "CompletionDate"), int(at.timestamp()))
    environment = v2({"OPSPORTAL_REQUEST": "MICE-7", "OPSPORTAL_STAGE": "sim"})
    schedd.submit(
        7, [{}, {}], Cmd="run.sh", Iwd=str(home), QDate=times["QDate"], Environment=environment
    )
    (home / "run.sh").write_bytes(SCRIPT)
    with capturing(schedd.spool, journal) as (_, portal):
        wait_for(lambda: portal.jobs)
    history = b"".join(
        history_ad(7, proc, **times) + banner(7, proc, completed=times["CompletionDate"])
        for proc in (0, 1)
    )
    (schedd.spool / "history").write_bytes(history)
    cluster = ensure_cluster(name="mice", scheduler="htcondor", by="test", at=at)
    cluster.options = {"history": str(schedd.spool)}
    cluster.save()

    store_jobs(jobs=portal.jobs, by="capture", at=at)
    done = collect_finished_jobs(cluster=cluster, at=timezone.now())
    link_jobs(jobs=Job.objects.all(), at=timezone.now())

    assert (done.new, done.problem) == (2, "")
    jobs = Job.objects.order_by("job_id")
    assert [(job.job_id, job.claimed_key, job.stage) for job in jobs] == [
        ("7.0", "MICE-7", "sim"),
        ("7.1", "MICE-7", "sim"),
    ]
    assert {archived_job_for(job).job_id for job in jobs} == {"7"}


@pytest.mark.slow
def test_kill_in_a_burst_loses_and_doubles_nothing(portal, schedd, home):
    """1,000 jobs come and half of them go; the log is replaced meanwhile;
    capture is killed in the middle.
    """
    jobs = range(1, 1001)
    condor = (schedd.spool, "--scheduler", "htcondor")

    def burst():
        for number in jobs:
            submit(schedd, home, number)
            if number % 2:
                schedd.remove(number)
            if number == 400:
                schedd.compact()
            time.sleep(0.002)

    writer = threading.Thread(target=burst)
    with portal.capturing(*condor) as first:
        writer.start()
        wait_for(lambda: archived() > 100)
        first.kill()
    with portal.capturing(*condor):
        writer.join()
        wait_for(lambda: archived() == len(jobs))
    portal.capture_once(*condor)

    digests = {
        str(number): (
            hashlib.sha256(b"#!/bin/sh\n./simulate --seed %d\n" % number).hexdigest(),
            hashlib.sha256(pack([(b"SEED", b"%d" % number)])).hexdigest(),
        )
        for number in jobs
    }
    listed = portal.listed()
    assert {
        job["job_id"]: (job["script_sha256"], job["environment_sha256"]) for job in listed
    } == digests
    assert len(listed) == ArchivedJob.objects.count() == len(jobs)
    assert all(
        caveat.startswith(COPIED) for caveat in ArchivedJob.objects.values_list("caveat", flat=True)
    )
