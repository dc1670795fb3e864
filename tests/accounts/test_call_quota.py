"""The hourly limit on the calls of a token."""

from datetime import UTC, datetime, timedelta

import pytest
from django.core.cache import cache

from apps.accounts.domain.api_tokens import create_token
from apps.accounts.models import ApiToken
from tests.pages import text_of

AT = datetime(2026, 11, 22, 9, 20, tzinfo=UTC)
LIST = "/api/v1/saved-views/"


@pytest.fixture(autouse=True)
def at_a_moment(time_machine):
    cache.clear()
    time_machine.move_to(AT, tick=False)


@pytest.fixture
def call(client, shifter):
    """Return a function that makes a token and returns one that calls with it."""

    def with_token(name, calls_per_hour=None):
        token = create_token(
            user=shifter, name=name, days=9, by=shifter, at=AT, calls_per_hour=calls_per_hour
        )
        return lambda: client.get(LIST, headers={"Authorization": f"Bearer {token}"})

    return with_token


def test_token_has_its_own_limit(call):
    nightly = call("nightly", 2)
    answers = [nightly() for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert [answer.get("RateLimit-Remaining") for answer in answers] == ["1", "0", None]
    assert (answers[0]["RateLimit-Limit"], answers[0]["RateLimit-Reset"]) == ("2", "2400")
    assert answers[2]["Retry-After"] == "2400"
    assert answers[2].json()["detail"] == (
        "The token “nightly” has made 2 calls in this hour. Try again after 10:00 UTC."
    )
    assert call("other", 2)().status_code == 200


def test_token_may_call_again_in_the_next_hour(call, time_machine):
    nightly = call("nightly", 1)
    assert [nightly().status_code for _ in range(2)] == [200, 429]
    time_machine.move_to(AT + timedelta(hours=1), tick=False)
    assert nightly().status_code == 200


@pytest.mark.parametrize("own", [None, 5])
def test_limit_of_the_portal_is_the_largest(call, settings, own):
    settings.API_MAX_CALLS_PER_HOUR = 1
    nightly = call("nightly", own)
    assert [nightly().status_code for _ in range(2)] == [200, 429]


def test_browser_session_is_not_limited(browse, shifter, settings):
    settings.API_MAX_CALLS_PER_HOUR = 1
    client = browse(shifter)
    answers = [client.get(LIST) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 200]
    assert "RateLimit-Limit" not in answers[0]


def test_settings_take_a_limit_and_show_the_calls(browse, client, shifter):
    page = browse(shifter)
    form = {"name": "nightly", "scope": "read", "days": "9", "calls_per_hour": "50"}
    token = page.post("/accounts/settings/tokens/", form).context["new_token"]
    assert ApiToken.objects.get().calls_per_hour == 50
    for _ in range(3):
        client.get(LIST, headers={"Authorization": f"Bearer {token}"})
    assert "3 <small>of 50</small>" in text_of(page.get("/accounts/settings/"))


@pytest.mark.parametrize("wrong", ["0", "-1", "many"])
def test_wrong_limit_is_refused_beside_the_field(browse, shifter, wrong):
    form = {"name": "nightly", "scope": "read", "days": "9", "calls_per_hour": wrong}
    answer = browse(shifter).post("/accounts/settings/tokens/", form)
    assert answer.status_code == 400
    assert answer.context["token_form"].errors.keys() == {"calls_per_hour"}
    assert not ApiToken.objects.exists()
