"""What the jobs of a failure group have in common, and what is no finding."""

from datetime import UTC, datetime, timedelta

import pytest

from apps.diagnosis.domain.groups.profile import JobTrait, Profile, by_excess, compute_profile
from apps.diagnosis.domain.groups.waits import name_of_service
from apps.jobs.models import Job
from apps.statusboard.domain.incidents.incidents import close_incident, open_incident
from apps.statusboard.enums import State
from tests.factories import clusters, jobs, statusboard
from tests.factories.verdicts import failure_group, verdict

NOW = datetime(2026, 11, 29, 16, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.fixture
def group(db):
    """Twelve jobs that failed because of samweb between two and three, among many others."""
    farm = clusters.cluster("farm")
    group = failure_group(at=NOW, service="samweb")
    for number in range(12):
        ended_at = NOW - HOUR - timedelta(minutes=4 * number + 5)
        job = jobs.row(farm, number + 1, at=NOW, ended_at=ended_at, exit_code=65)
        verdict(job, at=ended_at, group=group, service="samweb")
    for number in range(100):
        ended_at = NOW - timedelta(minutes=9 * number)
        jobs.row(farm, 1000 + number, at=NOW, state="completed", exit_code=0, ended_at=ended_at)
    first = jobs.row(farm, 2000, at=NOW, ended_at=NOW - 12 * HOUR, exit_code=65)
    verdict(first, at=NOW - 12 * HOUR, group=group, service="samweb")
    return group


def attributes_of(group):
    profile = compute_profile(group, total=13)
    return {(trait.attribute, trait.value) for trait in profile.outstanding}


def test_hours_of_an_outage_of_the_service_are_no_finding(group, shifter):
    assert attributes_of(group) == {("exit code", "65"), ("hour", "14:00 UTC")}
    samweb = statusboard.service("samweb", NOW - timedelta(days=3))
    outage = open_incident(
        service=samweb,
        state=State.DOWN,
        title="503",
        by=shifter,
        at=NOW,
        started_at=NOW - timedelta(hours=1, minutes=50),
    )
    close_incident(incident=outage, by=shifter, at=NOW, reason="Restarted.")
    assert attributes_of(group) == {("exit code", "65")}


def test_an_experiment_is_named_as_on_all_pages(group, nova):
    assert nova.name != nova.key
    Job.objects.filter(verdict__group=group).update(experiment=nova)
    assert ("experiment", nova.name) in attributes_of(group)


def test_host_of_few_jobs_of_a_central_outage_is_no_finding(group):
    Job.objects.filter(job_id__in=["1", "2", "3", "4"]).update(host="wn-0312")
    assert ("host", "wn-0312") in attributes_of(group)
    for number in range(13, 18):
        job = jobs.row(
            group.verdicts.first().job.cluster, number, at=NOW, ended_at=NOW - HOUR, exit_code=65
        )
        verdict(job, at=NOW - HOUR, group=group, service="samweb")
    profile = compute_profile(group, total=18)
    assert ("host", "wn-0312") in {(trait.attribute, trait.value) for trait in profile.traits}
    assert ("host", "wn-0312") not in attributes_of(group)


def test_outage_of_another_service_explains_no_hour(group, shifter):
    dcache = statusboard.service("dcache", NOW - timedelta(days=3))
    open_incident(
        service=dcache,
        state=State.DOWN,
        title="503",
        by=shifter,
        at=NOW,
        started_at=NOW - 2 * HOUR,
    )
    assert ("hour", "14:00 UTC") in attributes_of(group)


def trait(attribute, value, jobs, expected, *, stands_out=True):
    return JobTrait(attribute, value, jobs, 40, expected, jobs / 40 / expected, 1, 9, stands_out)


def test_findings_are_few_and_ordered_by_the_jobs_beyond_the_expected():
    """Not by their lift; what all jobs have is none, and equal figures are one finding."""
    profile = Profile(
        40,
        NOW,
        NOW,
        40,
        by_excess(
            [
                trait("host", "wn-0306", 12, 0.01),
                trait("exit code", "65", 40, 0.25),
                trait("release", "v11", 30, 0.5),
                trait("experiment", "MU2E", 30, 0.5),
                trait("hour", "14:00 UTC", 11, 0.05),
                trait("stage", "reco", 20, 0.25),
                trait("cluster", "farm", 40, 1.0, stands_out=False),
                trait("host", "wn-0307", 3, 0.01),
            ]
        ),
    )
    shown = [[trait.value for trait in traits] for traits in profile.findings]
    assert shown == [["65"], ["wn-0306"], ["MU2E", "v11"], ["reco"]]
    assert [trait.value for trait in profile.other_traits] == ["14:00 UTC", "wn-0307"]


def test_figures_of_a_finding_equal_a_recount(group):
    profile = compute_profile(group, total=13)
    hour = next(trait for trait in profile.traits if trait.value == "14:00 UTC")
    compared = Job.objects.filter(ended_at__range=(profile.start - HOUR, profile.end))
    in_hour = compared.filter(ended_at__hour=14)
    assert hour.jobs == in_hour.filter(exit_code=65).count()
    expected = 13 * in_hour.count() / compared.count()
    assert hour.expected_jobs == pytest.approx(expected)
    assert hour.excess == pytest.approx(hour.jobs - expected)


def test_service_has_its_name_on_the_status_board(db):
    service = statusboard.service("dcache", NOW)
    service.name = "dCache"
    service.save()
    assert [name_of_service(text) for text in ("DCACHE", "dCache", "frontier", "")] == [
        "dCache",
        "dCache",
        "frontier",
        "",
    ]
