"""A request on the simulated cluster, from the queue to data quality,
through an outage of a service that it needs.
"""

import os
import time
from collections import Counter
from datetime import UTC, datetime

import pytest

from apps.clusters.schedulers.base import CurrentState
from apps.clusters.schedulers.simulated import Simulated
from apps.core import tasks as core_tasks
from apps.core.models import Event
from apps.demo.simulation.simulator import Config, Simulator
from apps.demo.simulation.world import CAMPAIGNS
from apps.diagnosis.enums import HarvestState
from apps.diagnosis.models import LogHarvest
from apps.diagnosis.tasks import harvest_log
from apps.jobs.domain.collection.accounting import collect_finished_jobs
from apps.jobs.domain.totals.rollups import recompute_dirty_hours
from apps.jobs.models import Job
from apps.production.domain.lifecycle.moves import make_move
from apps.production.enums import Verb
from apps.progress.domain.transitions import follow_requests
from apps.submission.domain.retries.by_stage import retry_failed
from apps.submission.tasks import send_to
from tests.factories import clusters, requests
from tests.factories.archive import archive_all
from tests.factories.capture import capture_once

pytestmark = pytest.mark.django_db(transaction=True)

#: What the cluster runs beside the request of a test, which has the first key.
OTHERS = tuple(campaign for campaign in CAMPAIGNS if campaign.request != "NOVA-0001")


class Demo:
    """The simulation and the portal on one clock, which goes on by some minutes each turn."""

    def __init__(self, directory, monkeypatch, settings) -> None:
        self.directory, self.now = directory, time.time()
        config = Config(
            directory=directory, spool=directory / "spool", days=0.01, jobs_per_day=24, pace=100
        )
        self.simulator = Simulator(config, self.now, OTHERS)
        self.advance(1)
        settings.LOG_ROOTS = [directory]
        options = {"dir": str(directory), "log_owners": str(os.getuid())}
        self.cluster = clusters.cluster(
            "sim", "simulated", options=options, submits=True, submission={"partition": "grid"}
        )
        self.scheduler = Simulated("sim", options)
        monkeypatch.setattr("django.utils.timezone.now", self.clock)

    def clock(self) -> datetime:
        return datetime.fromtimestamp(self.now, UTC)

    def advance(self, seconds: float) -> None:
        self.now += seconds
        for _ in self.simulator.advance(self.now):
            pass

    def turn(self, minutes: float = 12) -> None:
        send_to(cluster_id=self.cluster.pk)
        self.advance(1)
        spool = self.directory / "spool"
        journal = self.directory / "journal"
        capture_once(cluster="sim", scheduler="simulated", spool=spool, journal=journal)
        archive_all()
        self.advance(minutes * 60)
        assert not collect_finished_jobs(cluster=self.cluster, at=self.clock()).problem
        core_tasks.deliver_waiting()
        for pk in list(
            LogHarvest.objects.filter(state=HarvestState.QUEUED).values_list("pk", flat=True)
        ):
            harvest_log(harvest_id=pk)
        recompute_dirty_hours(at=self.clock())
        follow_requests(at=self.clock())


@pytest.fixture
def demo(tmp_path, monkeypatch, settings, db):
    demo = Demo(tmp_path / "sim", monkeypatch, settings)
    yield demo
    demo.simulator.close()


def request_of(liaison, nova, approver, jobs=6):
    stages = tuple(
        requests.stage(name, jobs=jobs, events=600) for name in ("generation", "simulation", "reco")
    )
    return requests.request_in(
        "queued", by=liaison, experiment=nova, approver=approver, stages=stages
    )


def test_a_request_runs_to_data_quality_through_an_outage(demo, liaison, nova, approver):
    request = request_of(liaison, nova, approver)
    for _ in range(60):
        demo.turn()
        request.refresh_from_db()
        if request.state == "data_quality":
            break
        if request.state == "on_hold":
            make_move(
                verb=Verb.RELEASE,
                request=request,
                by=approver,
                at=demo.clock(),
                reason="Try again.",
            )
        press_send_again(request, approver, demo)
    assert request.state == "data_quality"
    kinds = Counter(Event.objects.filter(target_id=str(request.pk)).values_list("kind", flat=True))
    assert kinds["request.start"] == kinds["request.complete"] == 1
    jobs_by_stage = Counter(Job.objects.filter(request=request).values_list("stage", "state"))
    for stage in ("generation", "simulation", "reco"):
        assert jobs_by_stage[stage, "completed"] == 6
        assert jobs_by_stage[f"{stage}.test", "completed"] == 1
    failed = Job.objects.filter(request=request, state="failed", verdict__verdict="service")
    assert failed.exists(), "samweb is out when a simulation begins"
    again = request.submissions.exclude(retry_of=None).filter(created_by="opsportal")
    assert again.exists() or request.submissions.filter(purpose="test").count() > 3


def press_send_again(request, approver, demo) -> None:
    """Send again what waits for a person, as a shifter does."""
    for submission in request.submissions.filter(
        settled_at__isnull=False, purpose="production"
    ).exclude(failed_indices=""):
        if request.state == "running" and not submission.retries.exists():
            jobs = Job.objects.filter(spool_id=submission.spool_id, verdict__isnull=False)
            if (
                set(jobs.values_list("verdict__verdict", flat=True)) - {"service"}
                or submission.retry_of
            ):
                retry_failed(
                    request=request, position=submission.position, by=approver, at=demo.clock()
                )
                return


def test_jobs_of_a_held_request_wait_and_those_of_a_cancelled_one_end(
    demo, liaison, nova, approver
):
    request = request_of(liaison, nova, approver)
    send_to(cluster_id=demo.cluster.pk)
    request.refresh_from_db()
    make_move(verb=Verb.HOLD, request=request, by=approver, at=demo.clock(), reason="Wait.")
    send_to(cluster_id=demo.cluster.pk)
    demo.advance(120)
    held = [
        current_job
        for current_job in demo.scheduler.current_jobs()
        if current_job.spool_id == "5000000"
    ]
    assert [(one.state, one.jobs) for one in held] == [(CurrentState.HELD, 1)]
    make_move(verb=Verb.CANCEL, request=request, by=liaison, at=demo.clock(), reason="Not needed.")
    send_to(cluster_id=demo.cluster.pk)
    demo.advance(60)
    assert [
        current_job
        for current_job in demo.scheduler.current_jobs()
        if current_job.spool_id == "5000000"
    ] == []
    records = list(
        demo.scheduler.finished_jobs(since=datetime(2020, 1, 1, tzinfo=UTC), until=demo.clock())
    )
    assert [
        (record.job_id, record.state) for record in records if record.spool_id == "5000000"
    ] == [("5000000_0", "cancelled")]
