"""Capture of Torque's spool in this process: what is read, and how often."""

from collections.abc import Iterator
from contextlib import AbstractContextManager

import pytest

from apps.clusters.schedulers.base import SpooledJob, SpoolEntry
from apps.clusters.schedulers.torque.spool import TorqueSpool
from capture.capture import Capture
from capture.watch.base import Watch
from tests.archive.conftest import wait_for
from tests.factories.torque_spool import TorqueJob, TorqueServer, do

from .capturing import MemoryPortal, capture_of, running


class CountingSpool(TorqueSpool):
    """Counts what was read to its end."""

    whole = 0

    def read(self, entry: SpoolEntry) -> SpooledJob:
        job = super().read(entry)
        self.whole += 1
        return job


@pytest.fixture
def server(tmp_path) -> TorqueServer:
    return TorqueServer(tmp_path / "torque", subdirectories=True)


def running_torque(
    spool, journal, portal, watch=Watch.AUTO, **timing
) -> AbstractContextManager[Capture]:
    return running(
        capture_of(spool, journal, portal, cluster="old", scheduler="torque", watch=watch), **timing
    )


@pytest.mark.parametrize("tasks", [0, 3])
def test_changes_of_state_do_not_have_a_job_read_again(server, journal, tasks, watch) -> None:
    spool, portal, job = (
        CountingSpool(server.jobs),
        MemoryPortal(),
        TorqueJob(7, tasks=tasks, saves=5),
    )

    with running_torque(spool, journal, portal, watch, rescan_seconds=0.05) as capture:
        do(server.submission(job))
        wait_for(lambda: portal.jobs)
        do(server.life(job))
        capture.scan()
        wait_for(lambda: capture.report().waiting == 0)

    assert spool.whole == 1
    assert [job.job_id for job in portal.jobs] == [job.id]


def test_what_a_scan_finds_before_its_event_is_followed_is_read_once(server, journal) -> None:
    portal, job, late = MemoryPortal(), TorqueJob(7), TorqueJob(8)

    class SubmittedInScan(CountingSpool):
        def scan(self) -> Iterator[SpoolEntry]:
            if not server.path(job.number, ".SC").exists():
                do(server.submission(job))
            yield from super().scan()

    spool = SubmittedInScan(server.jobs)
    with running_torque(spool, journal, portal) as capture:
        wait_for(lambda: portal.jobs)
        do(server.submission(late))
        wait_for(lambda: len(portal.jobs) == 2)
        wait_for(lambda: capture.report().waiting == 0)

    assert spool.whole == 2


def test_directories_made_later_are_watched(tmp_path, journal, watch) -> None:
    server = TorqueServer(tmp_path / "torque")
    portal = MemoryPortal()

    with running_torque(TorqueSpool(server.jobs), journal, portal, watch):
        do(server.submission(TorqueJob(1)))
        wait_for(lambda: len(portal.jobs) == 1)
        (server.jobs / "2").mkdir()
        server.subdirectories = True
        do(server.submission(TorqueJob(12)))
        wait_for(lambda: len(portal.jobs) == 2)


def test_secret_never_reaches_the_journal(server, journal) -> None:
    portal = MemoryPortal()
    secret = "s3cret, with 'quotes'"
    job = TorqueJob(
        7,
        variables=[(b"TOKEN", secret.encode()), (b"A", b"1")],
        attributes={"submit_args": "-v TOKEN=s3cret,A=1 run.sh"},
    )
    do(server.submission(job))

    with running_torque(TorqueSpool(server.jobs), journal, portal):
        wait_for(lambda: portal.jobs)

    (captured,) = portal.jobs
    assert captured.masked_names == ("TOKEN",)
    assert captured.arguments.startswith("-v TOKEN=<masked:")
    assert b"TOKEN=&lt;masked:" in captured.description
    assert (
        b"s3cret" not in captured.description + captured.environment + captured.arguments.encode()
    )
