"""Verdicts over the API."""

import pytest
from rest_framework.test import APIClient

from apps.diagnosis.domain.harvest import harvest_log, queue_harvests
from apps.diagnosis.models import LogHarvest


@pytest.fixture
def job(make_job, at):
    made = make_job(log="[FATAL] Auth failed\n")
    queue_harvests(job_ids=[made.pk], at=at)
    harvest_log(harvest=LogHarvest.objects.get(), at=at)
    return made


def client_of(user) -> APIClient:
    client = APIClient()
    client.force_authenticate(user)
    return client


def test_verdict_is_given_with_its_evidence(job, liaison):
    body = client_of(liaison).get(f"/api/v1/verdicts/{job.pk}/").json()
    assert (body["verdict"], body["advice"], body["cluster"], body["experiment"]) == (
        "service",
        "retry",
        "alps",
        "NOVA",
    )
    assert body["evidence"][0]["pattern"] == "XRD-AUTH"


def test_verdicts_are_listed_and_filtered(job, shifter):
    client = client_of(shifter)
    assert [row["job"] for row in client.get("/api/v1/verdicts/").json()["results"]] == [job.pk]
    assert client.get("/api/v1/verdicts/", {"verdict": "code"}).json()["results"] == []
    assert len(client.get("/api/v1/verdicts/", {"cause": "XRD-AUTH"}).json()["results"]) == 1


def test_verdict_of_another_experiment_is_not_found(job, other_liaison):
    client = client_of(other_liaison)
    assert client.get(f"/api/v1/verdicts/{job.pk}/").status_code == 404
    assert client.get("/api/v1/verdicts/").json()["results"] == []
    assert client.post(f"/api/v1/verdicts/{job.pk}/harvest-again/").status_code == 404


def test_log_is_read_again_once_at_a_time(job, liaison):
    client = client_of(liaison)
    assert client.post(f"/api/v1/verdicts/{job.pk}/harvest-again/").status_code == 202
    assert LogHarvest.objects.get().state == "queued"
    assert client.post(f"/api/v1/verdicts/{job.pk}/harvest-again/").status_code == 409
    assert APIClient().get("/api/v1/verdicts/").status_code == 401
