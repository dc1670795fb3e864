import pytest
from rest_framework.test import APIClient

from tests.factories import requests
from tests.factories.quality import LATER, Produced


@pytest.fixture(autouse=True)
def today(monkeypatch):
    monkeypatch.setattr("django.utils.timezone.now", lambda: LATER)


@pytest.fixture
def api():
    """Return an API client with a session of this person, so that middleware knows them."""

    def login(user) -> APIClient:
        client = APIClient()
        client.force_login(user)
        return client

    return login


@pytest.fixture
def make(liaison, nova, approver):
    """Return a function that makes a request in a state."""

    def in_state(state: str = "data_quality", **changes) -> Produced:
        values = {"jobs": 2, "events": 10}
        stages = (requests.stage("generation", **values), requests.stage("simulation", **values))
        content = {"stages": stages, **changes}
        request = requests.request_in(
            state, by=liaison, experiment=nova, approver=approver, **content
        )
        return Produced(request, liaison)

    return in_state


@pytest.fixture
def produced(make) -> Produced:
    return make()
