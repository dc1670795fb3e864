"""Recovery rules on two simulated clusters: from the failed job to the end of its request."""

import os
import time
from collections import Counter
from datetime import UTC, datetime

import pytest

from apps.clusters.models import Site
from apps.clusters.schedulers.base import JobState
from apps.core import tasks as core_tasks
from apps.demo.simulation.simulator import Config, Simulator
from apps.demo.simulation.world import CAMPAIGNS
from apps.diagnosis.enums import HarvestState
from apps.diagnosis.models import LogHarvest, Verdict
from apps.diagnosis.tasks import harvest_log
from apps.jobs.domain.collection.accounting import collect_finished_jobs
from apps.jobs.domain.totals.rollups import recompute_dirty_hours
from apps.jobs.models import Job
from apps.production.enums import Verb
from apps.progress.domain.transitions import follow_requests
from apps.recovery import tasks as recovery_tasks
from apps.recovery.domain.rules.lifecycle import create_rule, move_rule, set_mode
from apps.recovery.enums import Mode
from apps.recovery.models import Decision, RecoveryRule
from apps.submission.domain.arrays.assignment import assign_request
from apps.submission.domain.arrays.submissions import stage_submissions_of
from apps.submission.models import Submission
from apps.submission.tasks import release_retries, send_to
from tests.factories import clusters, requests
from tests.factories.archive import archive_all
from tests.factories.capture import capture_once

pytestmark = pytest.mark.django_db(transaction=True)

JOBS = 3
#: What the clusters run beside the request of a test, which has the first key.
OTHERS = tuple(campaign for campaign in CAMPAIGNS if campaign.request != "NOVA-0001")


class TwoClusters:
    """Two simulated clusters and the portal on one clock.

    Jobs run a thousand times as fast on the second cluster as on the first, where they exceed their
    wall time.
    """

    def __init__(self, directory, monkeypatch, settings) -> None:
        self.directory = directory
        self.now = time.time()
        settings.LOG_ROOTS = [directory]
        self.simulators = {}
        self.clusters = {}
        for name, pace, calm in (("alps", 1, False), ("jura", 1000, True)):
            place = directory / name
            config = Config(
                directory=place,
                spool=place / "spool",
                days=0.01,
                jobs_per_day=24,
                pace=pace,
                calm=calm,
            )
            self.simulators[name] = Simulator(config, self.now, OTHERS)
            options = {"dir": str(place), "log_owners": str(os.getuid())}
            self.clusters[name] = clusters.cluster(
                name,
                "simulated",
                options=options,
                submits=True,
                submission={"partition": "grid", "account": name},
                site=Site.objects.create(name=f"Site of {name}"),
            )
        self.advance(1)
        monkeypatch.setattr("django.utils.timezone.now", self.clock)

    def clock(self) -> datetime:
        return datetime.fromtimestamp(self.now, UTC)

    def advance(self, seconds: float) -> None:
        self.now += seconds
        for simulator in self.simulators.values():
            for _ in simulator.advance(self.now):
                pass

    def turn(self, minutes: float = 12) -> None:
        for cluster in self.clusters.values():
            send_to(cluster_id=cluster.pk)
        self.advance(1)
        for name in self.clusters:
            place = self.directory / name
            capture_once(
                cluster=name,
                scheduler="simulated",
                spool=place / "spool",
                journal=place / "journal",
            )
        archive_all()
        self.advance(minutes * 60)
        for cluster in self.clusters.values():
            assert not collect_finished_jobs(cluster=cluster, at=self.clock()).problem
        core_tasks.deliver_waiting()
        for pk in list(
            LogHarvest.objects.filter(state=HarvestState.QUEUED).values_list("pk", flat=True)
        ):
            harvest_log(harvest_id=pk)
        for cluster in self.clusters.values():
            send_to(cluster_id=cluster.pk)
        recovery_tasks.run()
        release_retries()
        recompute_dirty_hours(at=self.clock())
        follow_requests(at=self.clock())

    def close(self) -> None:
        for simulator in self.simulators.values():
            simulator.close()


@pytest.fixture
def two(tmp_path, monkeypatch, settings, db):
    made = TwoClusters(tmp_path, monkeypatch, settings)
    yield made
    made.close()


def start(two, liaison, nova, approver, kind):
    """A running request whose jobs exceed their wall time, and the rule that acts on that."""
    rule = create_rule(
        name="Elsewhere",
        definition={
            "condition": {"end_states": ["timeout"]},
            "action": {"kind": kind},
            "limits": {"control_percent": 0},
        },
        by=approver,
        at=two.clock(),
    )
    move_rule(rule=rule, before=RecoveryRule.objects.first(), by=approver)
    set_mode(rule=rule, mode=Mode.ACTIVE, by=approver, at=two.clock(), reason="Test.")
    request = requests.request_in(
        "queued",
        by=liaison,
        experiment=nova,
        approver=approver,
        stages=(requests.stage("generation", jobs=JOBS, events=120 * JOBS, wall_seconds=120),),
    )
    assign_request(
        request=request, cluster=two.clusters["alps"], by=approver, at=two.clock(), verb=Verb.START
    )
    return request


@pytest.mark.parametrize("kind", ["other-cluster", "avoid-site"])
def test_jobs_that_fail_on_one_cluster_complete_on_the_other(two, liaison, nova, approver, kind):
    request = start(two, liaison, nova, approver, kind)
    for _ in range(12):
        two.turn()
        request.refresh_from_db()
        if request.state != "running":
            break

    assert request.state in ("completing", "data_quality")
    jobs = Counter(Job.objects.filter(request=request).values_list("cluster__name", "state"))
    assert jobs == {("alps", "timeout"): JOBS, ("jura", "completed"): JOBS}
    (stage,) = stage_submissions_of(request)
    assert (stage.completed, stage.to_retry, stage.running) == (JOBS, 0, 0)
    first, retry = Submission.objects.order_by("number")
    assert (retry.retry_of, retry.cluster.name, retry.indices) == (first, "jura", f"0-{JOBS - 1}")
    for verdict in Verdict.objects.filter(job__request=request):
        assert (verdict.later_state, verdict.retried_on.name) == (JobState.COMPLETED, "jura")
    decisions = Decision.objects.filter(job__request=request)
    assert decisions.count() == JOBS
    outcomes = decisions.values_list("arm", "outcome", "recovery")
    assert set(outcomes) == {("acted", "completed", "by-rule")}


def test_each_retry_has_half_the_events_until_a_person_is_asked(two, liaison, nova, approver):
    request = start(two, liaison, nova, approver, "half-events")
    for _ in range(12):
        two.turn()
        if Decision.objects.filter(job__request=request, arm="question").count() == JOBS:
            break

    arrays = Submission.objects.order_by("number")
    assert [array.changes for array in arrays] == [{}, {"events_part": 2}, {"events_part": 4}]
    for array, events in zip(arrays, ("120 + (", "(120 + ", "(120 + "), strict=True):
        assert f"OPSPORTAL_EVENTS_PER_JOB=$(({events}" in array.script
    jobs = Counter(Job.objects.filter(request=request).values_list("cluster__name", "state"))
    assert jobs == {("alps", "timeout"): 3 * JOBS}, "each job ran once with each number of events"
    arms = Counter(Decision.objects.filter(job__request=request).values_list("arm", flat=True))
    assert arms == {"acted": JOBS, "acted-again": JOBS, "question": JOBS}
