"""A controller of Slurm is killed with its capture, and the other one takes over."""

import os
import tempfile
from pathlib import Path

import pytest
from django.conf import settings
from django.db import connection
from django.utils import timezone
from pytest_django.live_server_helper import LiveServer

from apps.archive.domain.capture_hosts import create_capture_host
from apps.core.api.operations import operations
from benchmarks.failover.archived import ArchivedNumber, read_numbers
from benchmarks.failover.controllers import Run
from benchmarks.failover.network import GATEWAY, Network, NetworkError
from benchmarks.failover.slurm import CLUSTER, SlurmCannotRun, SlurmPair
from dev.processes import guard
from tests.factories.archive import archive_all

pytestmark = [
    pytest.mark.slow,
    pytest.mark.slurm,
    # Not beside a browser, which gives up its requests when an interface of the host comes or goes.
    pytest.mark.xdist_group("browser"),
    pytest.mark.timeout(900),
]
TIMEOUT_SECONDS = 5


@pytest.fixture
def network():
    scratch = Path(tempfile.mkdtemp(prefix="opsportal-failover-"))
    scratch.chmod(0o755)  # slurmd checks that a job's user may get to its spool
    (scratch / "run").mkdir()
    watchdog = guard(scratch / "run", remove=scratch)
    try:
        network = Network(scratch)
        yield network
        network.close()
    except NetworkError as error:
        _cannot_run(str(error))
    finally:
        watchdog.communicate(timeout=120)


@pytest.fixture
def slurm(network):
    """A Slurm whose second controller takes over from the first one."""
    try:
        return SlurmPair(network, network.base, remote_state=False, timeout_seconds=TIMEOUT_SECONDS)
    except SlurmCannotRun as error:
        _cannot_run(str(error))


def _cannot_run(reason: str) -> None:
    (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(f"slurm: {reason}")


@pytest.fixture
def portal(slurm, transactional_db, monkeypatch):
    """The address of a portal that the controllers' hosts reach."""
    monkeypatch.setattr(settings, "ALLOWED_HOSTS", [*settings.ALLOWED_HOSTS, GATEWAY])
    operations()  # as the web server does before its first request; not for two at once
    server = LiveServer(GATEWAY)
    yield server.url
    for machine in slurm.controllers:
        machine.end("capture")
    server.stop()
    with connection.cursor() as cursor:
        # Threads of the server wait for a killed machine's next request, with a session each.
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid != pg_backend_pid()"
        )


def read_archive() -> list[ArchivedNumber]:
    archive_all()
    return read_numbers()


def test_each_job_is_archived_once_when_the_acting_controller_is_killed(slurm, portal):
    for machine in slurm.controllers:
        _, token = create_capture_host(
            name=machine.name, clusters=[CLUSTER], by="test", at=timezone.now()
        )
        slurm.serve_capture(machine, portal, token, settings.MASKING_KEY)
    run = Run(slurm, read_archive, pause_seconds=0.4, before_seconds=4)
    try:
        outage = run.let_fail("acting", seconds=TIMEOUT_SECONDS)
    finally:
        run.close()

    assert outage.audit.is_whole(), outage
    assert outage.accepted > 5
    assert outage.acting == "ctl2"
