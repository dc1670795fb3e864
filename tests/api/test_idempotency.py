"""A change that is sent again with its key is made once: replayed, raced, killed, refused,
forgotten.
"""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Event as Flag

import pytest
import time_machine
from django.db import connection, transaction
from django.test import Client
from django.utils import timezone

from apps.accounts.domain.roles import revoke_role
from apps.accounts.models import ApiToken
from apps.api.models import KeyedCall
from apps.api.tasks import drop_old_calls
from apps.core.domain.events import events_of
from apps.production.models import Request
from tests.factories.requests import draft

DRAFTS = "/api/v1/requests/"


def token(user) -> str:
    return ApiToken.objects.create(user, expiry=timedelta(days=1))[1]


def send(client, url, data, *, key=None, method="post", **headers):
    if key is not None:
        headers["Idempotency-Key"] = key
    return getattr(client, method)(url, data, content_type="application/json", headers=headers)


@pytest.fixture
def as_liaison(client, liaison):
    client.force_login(liaison)
    return client


def test_the_second_is_answered_as_the_first_and_changes_nothing(as_liaison, nova):
    body = {"experiment": "NOVA", "title": "Rock muons"}
    first = send(as_liaison, DRAFTS, body, key='"8e03978e"')
    again = send(as_liaison, DRAFTS, body, key="8e03978e")  # quotes are not part of it
    assert (first.status_code, again.status_code) == (201, 201)
    assert first.content == again.content
    assert first["Content-Type"] == again["Content-Type"]
    assert "Idempotency-Replayed" not in first
    assert again["Idempotency-Replayed"] == "true"
    assert Request.objects.count() == 1


def test_response_is_not_repeated_to_a_user_who_lost_the_role(as_liaison, nova, liaison):
    body = {"experiment": "NOVA", "title": "Rock muons"}
    assert send(as_liaison, DRAFTS, body, key="k").status_code == 201
    revoke_role(membership=liaison.memberships.get(), by="test", at=timezone.now())
    refused = send(as_liaison, DRAFTS, body, key="k")
    assert refused.status_code == 403
    assert "Rock muons" not in refused.content.decode()
    assert Request.objects.count() == 1


def test_without_a_key_or_with_another_it_is_another_change(as_liaison, nova):
    body = {"experiment": "NOVA"}
    for key in (None, None, "one", "two"):
        assert send(as_liaison, DRAFTS, body, key=key).status_code == 201
    assert Request.objects.count() == 4


def test_the_key_of_another_body_is_refused(as_liaison, nova):
    send(as_liaison, DRAFTS, {"experiment": "NOVA", "title": "one"}, key="k")
    refused = send(as_liaison, DRAFTS, {"experiment": "NOVA", "title": "two"}, key="k")
    assert refused.status_code == 422
    assert "used for another call" in refused.json()["detail"]
    assert Request.objects.get().title == "one"


def test_a_key_belongs_to_its_person_and_route(as_liaison, nova, liaison, approver):
    obj = draft(liaison, nova)
    body = {"experiment": "NOVA"}
    assert send(as_liaison, DRAFTS, body, key="k").status_code == 201
    assert (
        send(as_liaison, f"{DRAFTS}{obj.key}/cancel/", {"reason": "x"}, key="k").status_code == 200
    )
    other = Client()
    other.force_login(approver)
    assert send(other, DRAFTS, body, key="k").status_code == 403


@pytest.mark.parametrize("method", ["put", "patch"])
def test_other_methods_have_keys_too(as_liaison, nova, liaison, method):
    obj = draft(liaison, nova)
    body = {"title": "anew", "version": 1}
    first = send(as_liaison, f"{DRAFTS}{obj.key}/", body, key="k", method=method)
    again = send(as_liaison, f"{DRAFTS}{obj.key}/", body, key="k", method=method)
    assert (first.status_code, again.status_code) == (200, 200), again.content
    assert again.json()["version"] == 2
    assert send(as_liaison, f"{DRAFTS}{obj.key}/", body, method=method).status_code == 409


def test_what_was_refused_is_tried_again(as_liaison, nova, liaison, approver):
    wrong = send(as_liaison, DRAFTS, {"experiment": "MARS"}, key="k")
    right = send(as_liaison, DRAFTS, {"experiment": "NOVA"}, key="k")
    assert (wrong.status_code, right.status_code) == (400, 201)


@pytest.mark.parametrize("key", ["", " ", '"', "ä", "x" * 256, '"a"b"', "a b"])
def test_a_key_that_is_none_is_told(as_liaison, nova, key):
    refused = send(as_liaison, DRAFTS, {"experiment": "NOVA"}, key=key)
    assert refused.status_code == 400
    assert not Request.objects.exists()


def test_who_may_no_more_is_not_answered_from_memory(nova, liaison):
    headers = {"Authorization": f"Token {token(liaison)}"}
    assert send(Client(), DRAFTS, {"experiment": "NOVA"}, key="k", **headers).status_code == 201
    ApiToken.objects.all().delete()
    assert send(Client(), DRAFTS, {"experiment": "NOVA"}, key="k", **headers).status_code == 401


def test_keys_are_forgotten_after_their_time(as_liaison, nova, settings):
    settings.IDEMPOTENCY_HOURS = 2
    now = timezone.now()
    body = {"experiment": "NOVA"}
    send(as_liaison, DRAFTS, body, key="k")
    with time_machine.travel(now + timedelta(hours=1), tick=False):
        drop_old_calls()
        assert KeyedCall.objects.count() == 1
    with time_machine.travel(now + timedelta(hours=3), tick=False):
        send(as_liaison, DRAFTS, body, key="k")  # nothing was swept yet
        assert (KeyedCall.objects.count(), Request.objects.count()) == (1, 2)
    with time_machine.travel(now + timedelta(hours=6), tick=False):
        drop_old_calls()
        assert not KeyedCall.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_while_one_runs_the_other_is_told_to_wait(nova, liaison, approver):
    """The first waits for the row of its request, which is held here;
    the second finds it at work.
    """
    obj, headers = draft(liaison, nova), {"Authorization": f"Token {token(liaison)}"}
    url, body = f"{DRAFTS}{obj.key}/", {"title": "anew", "version": 1}

    def call():
        try:
            return send(Client(), url, body, key="k", method="patch", **headers)
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            Request.objects.select_for_update().get(pk=obj.pk)
            first = pool.submit(call)
            until_somebody_waits()
            second = send(Client(), url, body, key="k", method="patch", **headers)
        assert (first.result(timeout=60).status_code, second.status_code) == (200, 409)
    assert "in progress" in second.json()["detail"]
    assert call().json() == first.result().json()
    assert [event.kind for event in events_of(obj)] == ["request.created", "request.edited"]


@pytest.mark.django_db(transaction=True)
def test_of_many_at_once_one_changes(nova, liaison):
    headers, go = {"Authorization": f"Token {token(liaison)}"}, Flag()

    def call():
        try:
            go.wait(30)
            return send(Client(), DRAFTS, {"experiment": "NOVA"}, key="k", **headers)
        finally:
            connection.close()

    with ThreadPoolExecutor(6) as pool:
        calls = [pool.submit(call) for _ in range(6)]
        go.set()
        answers = [call.result(timeout=60) for call in calls]
    made = [answer for answer in answers if answer.status_code == 201]
    assert made
    assert {answer.status_code for answer in answers} <= {201, 409}
    assert len({answer.content for answer in made}) == 1
    assert Request.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_a_call_cut_off_has_changed_nothing_and_can_be_made_again(nova, liaison):
    """To PostgreSQL a process killed at work is a connection that is gone before it committed."""
    obj, headers = draft(liaison, nova), {"Authorization": f"Token {token(liaison)}"}
    url, body = f"{DRAFTS}{obj.key}/", {"title": "anew", "version": 1}

    def call():
        try:
            return send(
                Client(raise_request_exception=False), url, body, key="k", method="patch", **headers
            )
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            Request.objects.select_for_update().get(pk=obj.pk)
            first = pool.submit(call)
            until_somebody_waits()
            with connection.cursor() as cursor:
                cursor.execute(
                    f"SELECT pg_terminate_backend(pid, 30000) FROM ({_WAITING}) AS waiting"
                )
        assert first.result(timeout=60).status_code == 503
    assert not KeyedCall.objects.exists()
    again = [send(Client(), url, body, key="k", method="patch", **headers) for _ in range(2)]
    assert [answer.json()["version"] for answer in again] == [2, 2]
    assert [event.kind for event in events_of(obj)] == ["request.created", "request.edited"]


#: Who waits for a lock, in the database of this worker: other tests have theirs on the same server.
_WAITING = """SELECT DISTINCT pid FROM pg_locks WHERE NOT granted AND pid IN (
    SELECT pid FROM pg_locks JOIN pg_database ON pg_database.oid = database WHERE datname = current_database())"""


def until_somebody_waits() -> None:
    for _ in range(2_000):
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT count(*) FROM ({_WAITING}) AS waiting")
            if cursor.fetchone()[0]:
                return
            cursor.execute("SELECT pg_sleep(0.02)")
    pytest.fail("nobody waits")
