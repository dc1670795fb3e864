"""Over generated months the portal finds the outages that were planted, and no others,
and what each did to jobs.
"""

import random
from datetime import UTC, datetime, timedelta
from math import comb

import pytest

from apps.diagnosis.domain.causes.impact.figures import impact_of
from apps.diagnosis.domain.causes.impact.recount import recount_impact
from apps.jobs.models import Job
from apps.statusboard.models import Incident
from tests.factories import clusters, requests
from tests.factories.statusboard import alert, post, service, source

BEGIN = datetime(2026, 8, 1, tzinfo=UTC)
DAYS = 60
HOUR = timedelta(hours=1)
KILLED = 0.6  # share of the jobs that an outage meets and fails


@pytest.fixture(params=[1, 2])
def chance(request) -> random.Random:
    return random.Random(request.param)


@pytest.fixture
def planted(chance) -> list[tuple[datetime, datetime, bool]]:
    """About two outages in five days, from the fourth day on: start, end,
    and whether it fails jobs.
    """
    found, start = [], BEGIN + timedelta(days=4)
    while start < BEGIN + timedelta(days=DAYS - 2):
        end = start + timedelta(minutes=chance.randrange(40, 300))
        found.append((start, end, chance.random() < 0.5))
        start = end + timedelta(minutes=chance.randrange(24 * 60, 96 * 60))
    return found


@pytest.fixture
def samweb(db):
    return service("samweb", BEGIN, source=source(BEGIN, lease_seconds=6 * 3600))


@pytest.fixture
def victims(chance, planted, samweb, nova, liaison) -> list[int]:
    """Store the jobs, of which some fail anyway, in clumps; return how many each outage failed."""
    stage, cluster = requests.stage("reco", services=("samweb",)), clusters.cluster()
    key = requests.draft(liaison, nova, stages=(stage,)).key
    counts, rows = [0] * len(planted), []
    for place in range(DAYS * 20):
        rate = chance.betavariate(0.5, 8)
        for _ in range(10):
            start = BEGIN + place * HOUR * 24 / 20 + timedelta(minutes=chance.randrange(60))
            end = start + timedelta(minutes=chance.randrange(20, 180))
            is_failed = chance.random() < rate
            for number, (begins, ends, is_harmful) in enumerate(planted):
                if (
                    is_harmful
                    and not is_failed
                    and start < ends
                    and end > begins
                    and chance.random() < KILLED
                ):
                    counts[number] += 1
                    is_failed = True
            job = {
                "job_id": str(len(rows)),
                "raw_id": len(rows),
                "spool_id": str(place),
                "collected_at": end,
            }
            times = {
                "submitted_at": start,
                "started_at": start,
                "ended_at": end,
                "wall_seconds": 3600,
                "cpus": 1,
            }
            origin = {"experiment": nova, "request_key": key, "stage": "reco", "proof": "submitted"}
            state = {"state": "failed" if is_failed else "completed", "exit_code": int(is_failed)}
            rows.append(Job(cluster=cluster, **job, **times, **origin, **state))
    Job.objects.bulk_create(rows, batch_size=1000)
    return counts


def test_planted_outages_are_found_with_what_they_did_and_none_is_invented(
    planted, victims, samweb, chance, shifter
):
    messages = []
    for start, end, _ in planted:
        fires, ends = alert(start, service="samweb"), alert(start, end, service="samweb")
        told = [(start + HOUR / 60, fires), (start + HOUR / 2, fires), (end + HOUR / 60, ends)]
        # Messages come late, repeated, and in any order.
        messages += chance.sample(told + chance.choices(told, k=2), k=5)
    for at, one in messages:
        post(samweb.source, at, one)
    incidents = list(Incident.objects.order_by("started_at"))
    assert [(incident_row.started_at, incident_row.ended_at) for incident_row in incidents] == [
        (start, end) for start, end, _ in planted
    ]

    found = []
    for incident in incidents:
        recount_impact(incident_id=incident.pk, at=BEGIN + timedelta(days=DAYS))
        figures = impact_of(incident, shifter)
        met = Job.objects.filter(started_at__lt=incident.ended_at, ended_at__gt=incident.started_at)
        assert (figures.exposed, figures.failed) == (
            met.count(),
            met.filter(state="failed").count(),
        )
        found.append(figures.excess)
    within = [
        excess.low <= count <= excess.high for excess, count in zip(found, victims, strict=True)
    ]
    assert within.count(False) <= chance_misses(len(within)), list(zip(found, victims, strict=True))
    harmful = [one for one, (*_, is_harmful) in zip(found, planted, strict=True) if is_harmful]
    harmless = [one for one, (*_, is_harmful) in zip(found, planted, strict=True) if not is_harmful]
    assert all(one.low > 0 for one in harmful)
    assert sum(one.low > 0 for one in harmless) <= chance_misses(len(harmless))
    assert sum(one.value for one in found) == pytest.approx(sum(victims), rel=0.15)


def chance_misses(count: int) -> int:
    """Return how many of so many intervals of 95 % miss at most, but for one time in a thousand."""
    likely = [
        comb(count, misses) * 0.05**misses * 0.95 ** (count - misses) for misses in range(count + 1)
    ]
    return next(misses for misses in range(count + 1) if sum(likely[: misses + 1]) > 0.999)
