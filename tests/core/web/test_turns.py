"""Costly answers: one of a user at a time."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from django.db import DataError, connection, transaction
from django.http import HttpResponse, StreamingHttpResponse
from django.test import RequestFactory

from apps.accounts.enums import Role
from apps.core.domain.locks import exclusive_lock
from apps.core.web import turns
from apps.core.web.turns import one_at_a_time
from tests.factories import people

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def user():
    return people.person("liu", (Role.SHIFTER, None))


class Holding:
    """Holds locks of a user in another session until the end of the block."""

    def __init__(self, user, *locks):
        self.user, self.locks = user, locks
        self.held, self.ended = threading.Event(), threading.Event()

    def __enter__(self):
        self.pool = ThreadPoolExecutor(1)
        self.holding = self.pool.submit(self._hold)
        assert self.held.wait(30)
        return self

    def _hold(self):
        with ExitStack() as stack:
            for lock in self.locks:
                assert stack.enter_context(exclusive_lock(lock, self.user.pk))
            self.held.set()
            self.ended.wait(30)
        connection.close()

    def __exit__(self, *_):
        self.ended.set()
        self.holding.result()
        self.pool.shutdown()


@pytest.mark.parametrize("address", ["/statistics/", "/api/v1/statistics/?by=site"])
def test_second_costly_answer_is_refused(client, user, address, monkeypatch):
    monkeypatch.setattr(turns, "WAIT_SECONDS", 0.2)
    client.force_login(user)
    with Holding(user, turns._TURN_LOCK):
        refused = client.get(address)
    assert (refused.status_code, refused["Retry-After"]) == (429, "1")
    assert (
        "Another of your pages or downloads is still being prepared or sent."
        in refused.content.decode()
    )
    assert client.get(address).status_code == 200


def test_costly_answers_of_others_go_on(client, user):
    client.force_login(people.person("mara", (Role.SHIFTER, None)))
    with Holding(user, turns._TURN_LOCK):
        assert client.get("/statistics/").status_code == 200


def test_second_answer_waits_for_the_first(client, user):
    client.force_login(user)
    with Holding(user, turns._TURN_LOCK) as first:
        threading.Timer(0.3, first.ended.set).start()
        assert client.get("/statistics/").status_code == 200


def test_third_answer_does_not_wait(client, user):
    client.force_login(user)
    with Holding(user, turns._TURN_LOCK, turns._WAITING_LOCK):
        began = time.monotonic()
        assert client.get("/statistics/").status_code == 429
    assert time.monotonic() - began < turns.WAIT_SECONDS


def is_free(user, lock=turns._TURN_LOCK) -> bool:
    """Whether another session could take a lock of a user."""

    def take():
        with exclusive_lock(lock, user.pk) as free:
            pass
        connection.close()
        return free

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(take).result()


@pytest.mark.parametrize("is_read", [True, False])
def test_download_refuses_only_others_until_its_end(user, is_read):
    request = RequestFactory().get("/")
    request.user = user
    response = one_at_a_time(lambda _: StreamingHttpResponse(iter([b"a", b"b"])))(request)
    assert (is_free(user), is_free(user, turns._DOWNLOAD_LOCK)) == (True, False)
    if is_read:
        assert b"".join(response.streaming_content) == b"ab"
    response.close()
    assert is_free(user, turns._DOWNLOAD_LOCK)
    with Holding(user, turns._DOWNLOAD_LOCK):
        second = one_at_a_time(lambda _: StreamingHttpResponse(iter([b"a"])))(request)
    assert second.status_code == 429


def test_form_of_a_page_is_never_refused(user):
    request = RequestFactory().post("/")
    request.user = user
    with Holding(user, turns._TURN_LOCK, turns._WAITING_LOCK):
        assert one_at_a_time(lambda _: HttpResponse())(request).status_code == 200


def test_lock_ends_with_a_transaction_that_failed(user):
    request = RequestFactory().get("/")
    request.user = user

    def fail(_):
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1 / 0")

    with pytest.raises(DataError), transaction.atomic():
        one_at_a_time(fail)(request)
    assert is_free(user)


def test_turn_ends_with_the_answer_and_with_an_error(user):
    request = RequestFactory().get("/")
    request.user = user
    one_at_a_time(lambda _: HttpResponse())(request)
    assert is_free(user)
    with pytest.raises(ZeroDivisionError):
        one_at_a_time(lambda _: 1 / 0)(request)
    assert is_free(user)
