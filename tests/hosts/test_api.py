"""Exclusions of hosts in the API, by role."""

from datetime import timedelta

import pytest

from apps.hosts.domain.exclusions import exclude_host, return_host
from apps.hosts.models import HostExclusion

LIST = "/api/v1/hosts/exclusions/"
VALUES = {"cluster": "alps", "host": "wn-2", "reason": "Bad disk."}


@pytest.fixture(autouse=True)
def now(monkeypatch, at):
    monkeypatch.setattr("django.utils.timezone.now", lambda: at)


@pytest.fixture
def exclusion(alps, run_well, shifter, at):
    run_well(alps, ["wn-1", "wn-2", "wn-3"])
    return exclude_host(cluster=alps, host="wn-1", reason="Rack.", by=shifter, at=at)


def test_everyone_reads_the_list_with_filters(exclusion, alps, api, liaison, shifter, at):
    ended = exclude_host(cluster=alps, host="wn-3", reason="Rack.", by=shifter, at=at)
    return_host(exclusion=ended, by=shifter, at=at, reason="New disk.")
    client = api(liaison)

    def hosts(query=""):
        answer = client.get(f"{LIST}{query}")
        assert answer.status_code == 200
        return [row["host"] for row in answer.json()["results"]]

    assert hosts() == ["wn-3", "wn-1"]
    assert hosts("?open=true") == ["wn-1"]
    assert hosts("?open=false") == ["wn-3"]
    assert hosts("?host=wn-1.example.org") == ["wn-1"]
    assert hosts("?cluster=other") == []
    assert hosts("?automatic=true") == []
    row = client.get(f"{LIST}{ended.pk}/").json()
    assert (row["ended_as"], row["end_reason"], row["cluster"]) == ("returned", "New disk.", "alps")


def test_exclusion_that_expired_is_not_open_before_the_portal_ends_it(exclusion, api, liaison, at):
    started_at = at - timedelta(days=1)
    HostExclusion.objects.update(started_at=started_at, expires_at=at)
    client = api(liaison)
    assert client.get(f"{LIST}?open=true").json()["results"] == []
    [row] = client.get(f"{LIST}?open=false").json()["results"]
    assert row["ended_at"] is None


def test_approvers_and_shifters_exclude_extend_and_return(exclusion, api, approver, at):
    client = api(approver)
    answer = client.post(LIST, VALUES, format="json")
    assert answer.status_code == 201
    made = HostExclusion.objects.get(host="wn-2")
    assert answer.json()["id"] == made.pk
    assert made.expires_at == at + timedelta(hours=24)

    until = (at + timedelta(days=3)).isoformat()
    answer = client.post(f"{LIST}{made.pk}/extend/", {"expires_at": until}, format="json")
    assert answer.status_code == 200
    made.refresh_from_db()
    assert made.expires_at == at + timedelta(days=3)

    answer = client.post(f"{LIST}{made.pk}/return/", {"reason": "New disk."}, format="json")
    assert (answer.status_code, answer.json()["ended_as"]) == (200, "returned")
    again = client.post(f"{LIST}{made.pk}/return/", {"reason": "New disk."}, format="json")
    assert again.status_code == 409


def test_problems_are_named_by_field(exclusion, api, shifter):
    client = api(shifter)
    answer = client.post(LIST, VALUES | {"host": "wn-99"}, format="json")
    assert answer.status_code == 400
    assert "host" in str(answer.json())
    answer = client.post(LIST, VALUES | {"cluster": "none"}, format="json")
    assert answer.status_code == 400
    answer = client.post(LIST, VALUES | {"host": "wn-1"}, format="json")
    assert answer.status_code == 409


def test_liaisons_change_nothing(exclusion, api, liaison, at):
    client = api(liaison)
    until = (at + timedelta(days=3)).isoformat()
    calls = [
        (LIST, VALUES),
        (f"{LIST}{exclusion.pk}/extend/", {"expires_at": until}),
        (f"{LIST}{exclusion.pk}/return/", {"reason": "New disk."}),
    ]
    for address, values in calls:
        assert client.post(address, values, format="json").status_code == 403
    assert HostExclusion.objects.filter(ended_at=None).count() == 1
