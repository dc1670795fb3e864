"""What an incident did to jobs: counted as one would by hand,
and again when either side changes.
"""

import html
import random
import re
from datetime import timedelta
from itertools import count

import pytest

from apps.core import tasks
from apps.core.web.templatetags.formatting import when
from apps.diagnosis.domain.causes.impact.figures import excess_of, impact_of
from apps.diagnosis.domain.causes.impact.recount import (
    mark_incidents,
    mark_met_by,
    recount_impact,
    recount_marked,
    verify_impacts,
)
from apps.diagnosis.enums import BaselineScope
from apps.diagnosis.models import DirtyImpact, Impact, ImpactGroup
from apps.jobs.models import Collection, Job
from apps.statusboard.domain.incidents.corrections import (
    correct_times,
    divide_incident,
    merge_incident,
    split_incident,
)
from apps.statusboard.domain.incidents.incidents import close_incident, open_incident
from apps.statusboard.domain.states.timeline import Span
from apps.statusboard.enums import State
from apps.statusboard.models import Incident
from tests.factories import clusters, requests
from tests.factories.jobs import row
from tests.factories.statusboard import service
from tests.factories.verdicts import verdict
from tests.pages import text_of
from tests.statusboard.overlaps import meeting

HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)


@pytest.fixture
def samweb(at, db):
    return service("samweb", at - timedelta(days=30))


@pytest.fixture
def ran(at, nova, liaison, samweb):
    """Store a job of the stage that needs samweb; times are minutes after `at`."""
    request = requests.draft(liaison, nova, stages=(requests.stage("reco", services=("samweb",)),))
    cluster, numbers = clusters.cluster(), count(1)

    def ran(start: float, end: float, state: str = "completed", **more) -> Job:
        number = next(numbers)
        fields = {
            "experiment": nova,
            "request_key": request.key,
            "stage": "reco",
            "proof": "submitted",
            **more,
        }
        return row(
            cluster,
            number,
            at=at + end * MINUTE,
            started_at=at + start * MINUTE,
            submitted_at=at - timedelta(days=9),
            state=state,
            cpus=1,
            spool_id=str(more.pop("spool_id", number)),
            **{name: value for name, value in fields.items() if name != "spool_id"},
        )

    return ran


@pytest.fixture
def outage(at, samweb, shifter):
    """samweb down from `at` for an hour, seen two hours later."""
    incident = open_incident(
        service=samweb, state=State.DOWN, title="503", by=shifter, at=at + HOUR, started_at=at
    )
    return close_incident(
        incident=incident, by=shifter, at=at + 2 * HOUR, ended_at=at + HOUR, reason="It answers."
    )


def test_jobs_are_counted_by_how_they_met_the_incident(at, ran, outage, shifter):
    random.seed(7)
    for _ in range(60):
        start = random.choice(range(-90, 90, 15))
        ran(start, start + random.choice(range(0, 240, 15)), random.choice(["completed", "failed"]))
    ran(-30, 30, "failed", request_key="", stage="")  # needs nothing that is known
    recount_impact(incident_id=outage.pk, at=at + 3 * HOUR)
    figures = impact_of(outage, shifter)
    jobs = list(Job.objects.exclude(request_key=""))
    met = [meeting(Span(job.started_at, job.ended_at), Span(at, at + HOUR)) for job in jobs]
    for kind in ("contained", "containing", "partial", "touching"):
        assert getattr(figures, kind) == met.count(kind), kind
    hit = [
        job
        for job, kind in zip(jobs, met, strict=True)
        if kind not in (None, "touching") and job.is_failed
    ]
    assert (figures.exposed, figures.failed) == (
        sum(kind not in (None, "touching") for kind in met),
        len(hit),
    )
    assert figures.failed_core_seconds == sum(job.core_seconds for job in hit)


def test_excess_is_over_what_was_usual_at_the_stage_and_victims_are_those_to_retry(
    at, ran, outage, shifter
):
    for number in range(100):
        ran(-2000, -1900 + number, "failed" if number < 10 else "completed")
    victims = [ran(10, 20, "failed") for _ in range(12)]
    for _ in range(28):
        ran(10, 20)
    for job in victims[:10]:
        verdict(job, at=at + HOUR, service="samweb")
    for job, later in zip(victims, ("completed", "failed"), strict=False):
        job.verdict.later_attempt, job.verdict.later_state = 2, later
        job.verdict.save()
    recount_impact(incident_id=outage.pk, at=at + 3 * HOUR)
    figures = impact_of(outage, shifter)
    assert (figures.excess.expected, figures.excess.value) == pytest.approx((4.0, 8.0))
    assert 0 < figures.excess.low < 8 < figures.excess.high <= 12
    assert (figures.confirmed, figures.succeeded, figures.retried, figures.eligible) == (
        10,
        1,
        1,
        8,
    )
    (stage,) = figures.stages
    assert stage.eligible_core_seconds == 8 * 3600
    assert stage.delay_seconds == pytest.approx(8 * 3600 / (100 * 3600 / (72 * 3600)))


def test_impact_is_counted_again_when_either_side_changes_late(at, ran, outage, shifter):
    def told() -> int:
        for _ in range(3):
            tasks.deliver_waiting()
        Impact.objects.update(counted_at=at)
        recount_marked(at=at + 3 * HOUR)
        assert verify_impacts(at=at + 4 * HOUR) == 0
        return impact_of(outage, shifter).exposed

    ran(10, 20)
    assert told() == 1
    mark_met_by(Job.objects.filter(pk=ran(70, 80, "failed").pk), baseline=False)
    assert not DirtyImpact.objects.exists()  # it met nothing
    ran(30, 40)
    mark_met_by(Job.objects.all())
    assert told() == 2
    correct_times(
        incident=outage,
        started_at=at,
        ended_at=at + 75 * MINUTE,
        by=shifter,
        at=at + 2 * HOUR,
        reason="The log.",
    )
    assert told() == 3
    other = open_incident(
        service=outage.service,
        state=State.DOWN,
        title="x",
        by=shifter,
        at=at + 3 * HOUR,
        started_at=at + 80 * MINUTE,
    )
    ran(90, 95)
    merge_incident(incident=other, into=outage, by=shifter, at=at + 3 * HOUR)
    assert told() == 4
    split_incident(incident=other, by=shifter, at=at + 3 * HOUR)
    assert told() == 3


def test_impact_is_not_counted_yet_while_only_a_count_of_no_jobs_is_stored(
    at, ran, outage, client, shifter
):
    def page() -> str:
        return text_of(client.get(outage.get_absolute_url()))

    client.force_login(shifter)
    DirtyImpact.objects.all().delete()
    recount_impact(incident_id=outage.pk, at=at + MINUTE)
    assert impact_of(outage, shifter).counted_at == at + MINUTE
    assert "Jobs exposed</h2><b>0</b>" in page()

    jobs = [ran(10, 20, "failed"), ran(10, 20)]
    mark_met_by(Job.objects.all())
    assert recount_marked(at=at + 2 * MINUTE) == 0, "it rests after the first count"
    assert impact_of(outage, shifter).counted_at is None
    assert "Jobs exposed" not in page()
    assert "jobs that ran during this incident are not counted yet." in page()
    link = re.search(r'href="(/failures/jobs/[?]service=[^"]*)"', page())
    assert link
    failed_jobs = client.get(html.unescape(link[1]))
    assert failed_jobs.context["filter"].form.is_valid()
    assert failed_jobs.context["filter"].form.cleaned_data["start"] == outage.started_at

    recount_marked(at=at + 5 * MINUTE)
    mark_met_by(Job.objects.all())
    figures = impact_of(outage, shifter)
    assert (figures.counted_at, figures.exposed) == (at + 5 * MINUTE, len(jobs))
    assert f"as of {when(figures.counted_at)}" in page()
    assert "2 within, 0 across its start or end ·" in page()
    read_until = at + 4 * MINUTE
    Collection.objects.create(cluster=jobs[0].cluster, collected_until=read_until)
    assert f"are counted up to {when(read_until)}: its accounting" in " ".join(page().split())
    dated = page().count(f"as of {when(figures.counted_at)}")
    assert dated == page().count("as of ") > 0, "no cluster that is behind dates the rest"


def test_incident_that_no_job_met_is_counted_although_jobs_of_other_services_mark_it(
    at, outage, shifter, time_machine
):
    for minutes, is_counted in ((10, False), (20, True)):
        time_machine.move_to(at + minutes * MINUTE, tick=False)
        recount_impact(incident_id=outage.pk, at=at + minutes * MINUTE)
        mark_incidents([outage.pk])
        assert (impact_of(outage, shifter).counted_at is not None) == is_counted
    time_machine.move_to(at + 30 * MINUTE, tick=False)
    assert impact_of(outage, shifter).counted_at is None, "its next count is overdue"


def test_no_jobs_are_no_impact_while_no_accounting_reaches_the_incident(
    at, outage, client, shifter
):
    client.force_login(shifter)
    DirtyImpact.objects.all().delete()
    recount_impact(incident_id=outage.pk, at=at + MINUTE)
    read = Collection.objects.create(
        cluster=clusters.cluster(), collected_until=outage.started_at - HOUR
    )
    page = text_of(client.get(outage.get_absolute_url()))
    assert "Jobs exposed" not in page
    assert "jobs that ran during this incident are not counted yet." in page
    assert "its accounting" in page
    read.collected_until = outage.started_at + MINUTE
    read.save()
    page = text_of(client.get(outage.get_absolute_url()))
    assert "Jobs exposed</h2><b>0</b>" in page
    assert "of the exposed jobs, for any cause</span>" in page


def test_impact_on_others_leaves_that_on_nobody_counted(at, ran, outage, liaison, other_liaison):
    ran(10, 20)
    recount_impact(incident_id=outage.pk, at=at + MINUTE)
    mark_met_by(Job.objects.all())
    assert [impact_of(outage, user).exposed for user in (liaison, other_liaison)] == [1, 0]
    assert impact_of(outage, other_liaison).counted_at == at + MINUTE


def test_jobs_of_a_divided_incident_are_counted_for_the_part_that_they_met(
    at, ran, outage, shifter
):
    def told() -> list[int]:
        for _ in range(3):
            tasks.deliver_waiting()
        Impact.objects.update(counted_at=at)
        recount_marked(at=at + 3 * HOUR)
        assert verify_impacts(at=at + 4 * HOUR) == 0
        return [impact_of(one, shifter).exposed for one in Incident.objects.order_by("started_at")]

    for start, end in ((5, 10), (22, 28), (35, 40), (15, 45), (45, 50)):
        ran(start, end)
    assert told() == [5]
    divide_incident(
        incident=outage,
        ended_at=at + 20 * MINUTE,
        resumed_at=at + 30 * MINUTE,
        by=shifter,
        at=at + 2 * HOUR,
        reason="It answered.",
    )
    assert told() == [2, 3]


def test_others_see_the_impact_on_their_own_jobs_only(at, ran, outage, other_liaison, liaison):
    ran(10, 20, "failed")
    recount_impact(incident_id=outage.pk, at=at + 3 * HOUR)
    assert impact_of(outage, liaison).failed == 1
    seen = impact_of(outage, other_liaison)
    assert (seen.failed, list(seen.bins.failed)) == (0, [])


def test_request_is_delayed_as_long_as_its_slowest_stage(outage, nova, shifter, at, client):
    impact = Impact.objects.create(
        incident=outage, counted_at=at + 2 * HOUR, bins_from=at, bin_seconds=300
    )
    for key, stage, jobs, cores in (
        ("NOVA-0003", "generation", 9, 20),
        ("NOVA-0003", "merge", 3, 1),
        ("NOVA-0003", "reco", 2, 0),
        ("NOVA-0004", "reco", 1, 0),
    ):
        impact.groups.create(
            experiment=nova,
            request_key=key,
            stage=stage,
            contained=10,
            failed=jobs + 1,
            confirmed=jobs,
            eligible_core_seconds=jobs * 1200,
            cores=cores,
        )
    DirtyImpact.objects.all().delete()

    figures = impact_of(outage, shifter)

    delayed = [(row.request_key, row.delay_seconds) for row in figures.requests_delayed]
    assert delayed == [("NOVA-0003", 3600), ("NOVA-0004", None)]
    assert {row.other_causes for row in figures.stages} == {1}
    client.force_login(shifter)
    page = text_of(client.get(f"/services/incidents/{outage.pk}/"))
    assert "NOVA-0003 by 1 h" in page
    assert "15 of these without a later attempt yet · as of" in page


def test_excess_lies_within_its_interval_and_none_is_invented():
    """Submissions that fail in clumps, with and without a planted outage: 95 % intervals,
    over 300 months.
    """
    random.seed(1)

    def clumped(submissions: int) -> list[tuple[int, int]]:
        return [
            (20, sum(random.random() < rate for _ in range(20)))
            for rate in (random.betavariate(0.3, 5.7) for _ in range(submissions))
        ]

    found = {True: 0, False: 0}
    inside = 0
    for month in range(300):
        before, usual = clumped(150), clumped(40)
        planted = 120 if month % 2 else 0
        jobs, failed = sum(n for n, _ in before), sum(k for _, k in before)
        spread = sum(k * k / n for n, k in before) - failed**2 / jobs
        rate = failed / jobs
        group = ImpactGroup(
            contained=sum(n for n, _ in usual),
            failed=sum(k for _, k in usual) + planted,
            baseline=BaselineScope.SITE,
            baseline_jobs=jobs,
            baseline_failed=failed,
            clumping=max(1, spread / (rate * (1 - rate)) / (len(before) - 1)),
        )
        excess = excess_of([group])
        inside += excess.low <= planted <= excess.high
        found[bool(planted)] += excess.is_clear
    assert inside >= 0.91 * 300
    assert (found[True], found[False] <= 9) == (150, True)
