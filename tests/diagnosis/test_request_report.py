"""How a request ran: the figures, and that they are frozen for good when it is closed."""

import json
from datetime import timedelta

import pytest
from django.urls import reverse

from apps.clusters.models import Cluster
from apps.core import tasks
from apps.diagnosis.models import RequestReport
from apps.diagnosis.request_report import digest_of, freeze_report, read_frozen, report_of
from apps.jobs.services import attach_origin
from apps.production import services
from apps.production.enums import Verb
from tests.jobs.accounting import AT, failed, record, store
from tests.production.written import pass_quality, request_in


@pytest.fixture
def ran(nova, liaison, approver):
    """A request in data quality: four jobs, one of which failed and was retried."""
    request = request_in("data_quality", by=liaison, experiment=nova, approver=approver)
    alps = Cluster.objects.create(name="jura", scheduler="simulated")
    jobs = store(
        alps,
        record(1, wall_seconds=1000, cpu_seconds=1000),
        record(2, wall_seconds=3000, cpu_seconds=3000),
        failed(3, attempt=1, wall_seconds=3600, cpu_seconds=0),
        record(3, attempt=2, wall_seconds=2000, cpu_seconds=2000),
    )
    attach_origin(origins={job.pk: (request.key, "generation") for job in jobs}, at=AT)
    return request


def test_figures_are_those_of_the_jobs(ran):
    report = report_of(ran, at=AT)
    (stage,) = report["stages"]
    assert stage == {"stage": "generation", **report["total"]}
    assert (stage["jobs"], stage["completed"], stage["failed"], stage["retried"]) == (4, 3, 1, 1)
    assert (stage["core_hours"], stage["wasted_core_hours"]) == (round(9600 * 2 / 3600, 2), 2.0)
    assert stage["efficiency"] == round(6000 / 19200, 4)
    assert (stage["wall_p50"], stage["wall_p95"], stage["wall_max"]) == (2000, 2900, 3000)
    assert [job["wall"] for job in report["slowest"]] == [3000, 2000, 1000]
    assert [(site["site"], site["jobs"]) for site in report["sites"]] == [("", 4)]


def test_stages_come_in_the_order_of_the_chain(ran, liaison, client):
    others = store(Cluster.objects.get(), record(11), record(12), record(13))
    names = ("a_stage_of_no_request", "simulation", "simulation")
    attach_origin(origins={job.pk: (ran.key, name) for job, name in zip(others, names, strict=True)}, at=AT)
    stages = [stage["stage"] for stage in report_of(ran, at=AT)["stages"]]
    assert stages == ["generation", "simulation", "a_stage_of_no_request"]
    client.force_login(liaison)
    text = client.get(reverse("diagnosis:request-report", args=[ran.key])).content.decode()
    assert "6 of 7 jobs completed." in text


def test_report_is_frozen_when_the_request_is_closed_and_stays(ran, approver, liaison, other_liaison, client):
    client.force_login(liaison)
    page = reverse("diagnosis:request-report", args=[ran.key])
    assert b"as of" in client.get(page).content
    pass_quality(ran, approver)
    services.SERVICES[Verb.DONE](request=ran, by=approver, at=AT + timedelta(days=1))
    for _ in range(3):
        tasks.deliver_waiting()
    kept = RequestReport.objects.get()
    before = read_frozen(kept)
    late = store(Cluster.objects.get(), record(9))
    attach_origin(origins={late[0].pk: (ran.key, "generation")}, at=AT)
    assert freeze_report(request=ran, at=AT + timedelta(days=2)) == kept
    assert (before["total"]["jobs"], report_of(ran, at=AT)["total"]["jobs"]) == (4, 5)
    address = reverse("diagnosis:frozen-report", args=[kept.sha256])
    assert client.get(page).headers["Location"] == address
    assert kept.sha256[:12] in client.get(address).content.decode()
    answer = client.get(reverse("api:request-report-detail", args=[ran.key])).json()
    assert (answer["sha256"], answer["report"]) == (digest_of(kept.content), json.loads(kept.content))
    client.force_login(other_liaison)
    assert client.get(address).status_code == 404


def test_changed_report_is_not_shown_as_frozen(ran):
    kept = freeze_report(request=ran, at=AT)
    RequestReport.objects.update(content=kept.content.replace('"jobs":4', '"jobs":5'))
    with pytest.raises(ValueError, match="was changed"):
        read_frozen(RequestReport.objects.get())


def test_request_that_was_never_approved_has_no_report(nova, liaison, approver):
    request_in("cancelled", by=liaison, experiment=nova, approver=approver)
    for _ in range(3):
        tasks.deliver_waiting()
    assert not RequestReport.objects.exists()


def test_report_keeps_its_query_count(ran, django_assert_max_num_queries):
    with django_assert_max_num_queries(8):
        report_of(ran, at=AT)
