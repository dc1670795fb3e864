"""Which services a job needs, whether they were out while it ran,
and what that does to its verdict.
"""

import re
from datetime import timedelta

import pytest

from apps.diagnosis.domain.reading.job_facts import outages_during_job, services_needed_by
from apps.diagnosis.domain.verdicts.harvest import harvest_log, queue_harvests
from apps.diagnosis.enums import Overlap
from apps.diagnosis.models import LogHarvest, Verdict
from apps.production.domain.types.versions import newest_version
from apps.production.models import Request, Stage
from apps.statusboard.domain.incidents.incidents import close_incident, open_incident
from apps.statusboard.domain.monitoring.alerts import mark_stale_incidents
from apps.statusboard.domain.states.services import create_service
from apps.statusboard.enums import Monitoring, State
from apps.statusboard.models import Service
from tests.factories import statusboard
from tests.pages import page_of


@pytest.fixture
def samweb(db, at):
    return create_service(
        slug="samweb",
        name="SAM web",
        monitoring=Monitoring.MANUAL,
        by="test",
        at=at - timedelta(days=30),
    )


@pytest.fixture
def stage(nova, samweb, liaison, at):
    request = Request.objects.create(
        key="NOVA-0001",
        experiment=nova,
        workflow=newest_version("general"),
        created_at=at,
        created_by=liaison,
    )
    stage = Stage.objects.create(request=request, position=0, name="reco")
    stage.services.add(samweb)
    return stage


@pytest.fixture
def job(make_job, stage):
    return make_job(log="nothing special\n", request_key="NOVA-0001", stage="reco")


@pytest.fixture
def outage(samweb, shifter, at):
    """SAM web was down from 20 to 10 minutes before the job's end."""
    incident = open_incident(
        service=samweb,
        state=State.DOWN,
        title="SAM web does not answer",
        by=shifter,
        at=at,
        started_at=at - timedelta(minutes=20),
    )
    close_incident(
        incident=incident,
        by=shifter,
        at=at,
        reason="restarted",
        ended_at=at - timedelta(minutes=10),
    )


def judge(job, at) -> Verdict:
    queue_harvests(job_pks=[job.pk], at=at)
    harvest_log(harvest=LogHarvest.objects.get(job=job), at=at)
    return Verdict.objects.get(job=job)


def needed_services(job) -> list[str]:
    services = Service.objects.filter(pk__in=services_needed_by([job])[job.pk])
    return [service.slug for service in services]


def test_services_of_the_stage_are_needed(job, samweb):
    assert needed_services(job) == ["samweb"]


@pytest.mark.parametrize("purpose", [".test", ".debug", ".test.debug"])
def test_tests_and_debug_reruns_need_the_services_of_their_stage(make_job, job, samweb, purpose):
    rerun = make_job(9, request_key="NOVA-0001", stage=f"reco{purpose}")
    assert needed_services(rerun) == ["samweb"]


def test_service_of_the_cluster_is_needed(make_job, at):
    job = make_job()
    job.cluster.service = create_service(slug="alps", name="Alps", by="test", at=at)
    assert needed_services(job) == ["alps"]


def test_request_of_another_experiment_is_not_believed(make_job, stage, dune):
    assert needed_services(make_job(request_key="NOVA-0001", stage="reco", experiment=dune)) == []
    assert (
        needed_services(make_job(2, request_key="NOVA-0001", stage="reco", experiment=None)) == []
    )


def test_service_that_nobody_watches_is_unknown(job, stage, at):
    stage.services.set([create_service(slug="tape", name="Tape", by="test", at=at)])
    assert [(outage.service, outage.overlap) for outage in outages_during_job(job)] == [
        ("tape", Overlap.UNKNOWN)
    ]


def test_job_that_never_started_met_no_outage(make_job, stage, outage):
    assert (
        outages_during_job(make_job(request_key="NOVA-0001", stage="reco", started_at=None)) == []
    )


def test_service_that_was_up_is_not_to_blame(job, at):
    verdict = judge(job, at)
    assert verdict.verdict == "unknown"
    assert "outage" not in [reason["kind"] for reason in verdict.reasons]


def test_outage_is_the_best_guess_where_nothing_else_is_known(job, at, outage):
    verdict = judge(job, at)
    assert (verdict.verdict, verdict.confidence, verdict.service) == ("service", "low", "samweb")
    expected = (
        "SAM web had an outage while the job ran: down 2026-11-20T11:40Z to 2026-11-20T11:50Z"
    )
    assert verdict.reasons[0] == {"kind": "outage", "text": expected, "target": "service:samweb"}


def test_outage_and_its_error_in_the_log_make_sure(make_job, stage, at, outage):
    log = "Exception: samweb: FetchError: Retry count exceeded\n"
    verdict = judge(make_job(log=log, request_key="NOVA-0001", stage="reco"), at)
    assert (verdict.verdict, verdict.confidence, verdict.service) == ("service", "high", "samweb")


def test_job_that_ended_before_the_outage_is_not_excused(make_job, stage, at, outage):
    job = make_job(
        log="nothing\n", request_key="NOVA-0001", stage="reco", ended_at=at - timedelta(minutes=20)
    )
    assert judge(job, at).verdict == "unknown"


def test_service_that_was_degraded_is_not_called_out(make_job, stage, samweb, shifter, at):
    begun = at - timedelta(hours=30)
    open_incident(
        service=samweb, state=State.DEGRADED, title="Slow", by=shifter, at=at, started_at=begun
    )
    verdict = judge(make_job(log="nothing\n", request_key="NOVA-0001", stage="reco"), at)
    assert verdict.summary == "SAM web was degraded while the job ran; no other cause found."
    text = "SAM web was degraded while the job ran: since 2026-11-19T06:00Z"
    assert verdict.reasons[0]["text"] == text


def test_outage_is_told_with_its_own_start_and_end(make_job, stage, samweb, shifter, at):
    open_incident(
        service=samweb,
        state=State.DOWN,
        title="503",
        by=shifter,
        at=at,
        started_at=at - timedelta(hours=30),
    )
    job = make_job(request_key="NOVA-0001", stage="reco")
    assert job.started_at > at - timedelta(hours=30)
    assert [outage.text for outage in outages_during_job(job)] == ["down since 2026-11-19T06:00Z"]


def test_outage_that_lasts_has_no_end_although_its_alert_has_a_lease(
    make_job, stage, samweb, client, shifter, at
):
    source = statusboard.source(at - timedelta(days=1), lease_seconds=3600)
    down = statusboard.alert(at - timedelta(hours=30), service="samweb")
    statusboard.post(source, at - timedelta(minutes=30), down)
    job = make_job(request_key="NOVA-0001", stage="reco")
    assert [outage.text for outage in outages_during_job(job)] == ["down since 2026-11-19T06:00Z"]
    page = page_of(client, shifter, job.get_absolute_url())
    [note] = re.findall(r'<p class="lane-note">(.*?)</p>', page, re.DOTALL)
    assert "now" in note
    assert "12:30" not in note, "when the lease expires"

    mark_stale_incidents(at=at + timedelta(hours=2))
    assert [outage.text for outage in outages_during_job(job)] == [
        "down 2026-11-19T06:00Z to 2026-11-20T12:30Z"
    ]
