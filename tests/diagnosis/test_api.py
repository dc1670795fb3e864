"""Verdicts over the API."""

import pytest
from rest_framework.test import APIClient

from apps.diagnosis.domain.verdicts.harvest import harvest_log, queue_harvests
from apps.diagnosis.models import LogHarvest


@pytest.fixture
def job(make_job, at):
    made = make_job(log="[FATAL] Auth failed\n")
    queue_harvests(job_pks=[made.pk], at=at)
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
        "hold",
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


NEW = {
    "id": "GEO-GONE",
    "title": "Geometry server gone",
    "category": "service",
    "service": "geometry",
    "regex": "geometry server gone",
    "role": "cause",
    "advice": "retry",
    "example": "ERROR geometry server gone after 3 s",
    "reason": "seen today",
}


def test_known_errors_are_added_or_proposed_and_decided(db, shifter, approver, at):
    mine, theirs, url = client_of(shifter), client_of(approver), "/api/v1/known-errors/"
    body = mine.post(url, NEW, format="json").json()
    assert (body["state"], body["version"], body["values"]["title"]) == (
        "proposed",
        None,
        "Geometry server gone",
    )
    decide = f"/api/v1/known-error-changes/{body['id']}"
    assert mine.post(f"{decide}/approve/").status_code == 403
    assert theirs.post(f"{decide}/reject/", {}, format="json").status_code == 400
    assert theirs.post(f"{decide}/approve/").json()["state"] == "applied"
    assert theirs.post(f"{decide}/approve/").status_code == 409
    assert mine.get(f"{url}GEO-GONE/").json()["version"] == 1
    change = {"title": "Geometry lost", "reason": "clearer", "base": 1}
    assert theirs.post(f"{url}GEO-GONE/change/", change, format="json").json()["version"] == 2
    assert theirs.post(f"{url}GEO-GONE/change/", change, format="json").status_code == 409
    proposed = theirs.post(
        f"{url}GEO-GONE/change/", {"passive": True, "reason": "x", "propose": True}, format="json"
    )
    assert proposed.json()["state"] == "proposed"
    wrong = theirs.post(url, {**NEW, "id": "GEO-2", "regex": "(?=x)geometry"}, format="json")
    assert (wrong.status_code, "RE2" in wrong.content.decode()) == (400, True)
    assert [
        row["known_error"]
        for row in theirs.get(f"{decide[: -len(str(body['id']))]}?state=proposed").json()["results"]
    ]


def test_known_errors_are_exported_and_imported(db, approver):
    client, url = client_of(approver), "/api/v1/known-errors/"
    client.post(url, NEW, format="json")
    text = client.get(f"{url}export/", {"q": "GEO-GONE"}).content.decode()
    assert text.startswith("known_errors:\n- id: GEO-GONE\n")
    changed = text.replace("Geometry server gone", "Geometry lost")
    assert client.post(f"{url}import/", {"text": changed}, format="json").json()["changed"] == [
        "GEO-GONE"
    ]
    assert client.get(f"{url}GEO-GONE/").json()["version"] == 1
    done = {"text": changed, "dry_run": False, "reason": "r"}
    assert client.post(f"{url}import/", done, format="json").json()["faults"] == []
    assert client.get(f"{url}GEO-GONE/").json()["title"] == "Geometry lost"
    wrong = client.post(
        f"{url}import/", {"text": text.replace("role: cause", "role: culprit")}, format="json"
    ).json()
    assert wrong["faults"][0]["line"] == text.split("\n").index("  role: cause") + 1
