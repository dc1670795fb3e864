"""The primary of PostgreSQL is killed, and its standby is promoted."""

import json
import os
from contextlib import ExitStack
from datetime import timedelta

import pytest
from django.db import DatabaseError, close_old_connections, connection, transaction
from django.test import Client
from django.utils import timezone

from apps.accounts.models import User
from apps.core import tasks
from apps.core.domain import event_kinds, events, health, outbox, subscriptions
from apps.core.domain.event_kinds import EventKind
from apps.core.models import Delivery, Event, Heartbeat
from dev.processes import free_port
from opsportal.beat import BeatTurn
from tests.archive.workers import web
from tests.factories import people
from tests.failover.browser import Browser
from tests.failover.postgresql_pair import Pair, on_database
from tests.failover.waiting import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("failover")]
#: The longest time without service, in seconds, on a machine that is busy with other tests.
LONGEST_OUTAGE = 30


@pytest.fixture
def pair(transactional_db, tmp_path_factory):
    """A primary and a standby, which this process uses as the portal does."""
    name = connection.settings_dict["NAME"]
    connection.close()
    with ExitStack() as stack:
        pair = Pair(stack, tmp_path_factory.mktemp("f"), name)
        stack.enter_context(on_database(pair.url))
        yield pair


@pytest.fixture
def browser(pair, tmp_path):
    """A user who is logged in, at a web process of its own."""
    port = free_port()
    environment = os.environ | {
        "DATABASE_URL": pair.url,
        "PORTAL_URL": f"http://127.0.0.1:{port}",
        "VAR_DIR": str(tmp_path / "var"),
        "DJANGO_SETTINGS_MODULE": "tests.failover.web_settings",
    }
    browser = Browser(port)
    client = Client()
    client.force_login(people.person("ann"))
    browser.session = client.cookies["sessionid"].value
    with web(environment, tmp_path):
        wait_for(lambda: browser.answers("/readyz"))
        yield browser


def readiness_of(browser: Browser) -> str:
    checks = json.loads(browser.ask("GET", "/readyz")[1])["checks"]
    return checks[0]["detail"]


@pytest.fixture
def killing_subscriber(pair, monkeypatch):
    """A subscriber of `thing.happened` that writes a heartbeat; the first time, the primary is
    killed before it can commit.
    """
    subscriptions.load_subscribers()
    monkeypatch.setattr(subscriptions, "_handlers", dict(subscriptions._handlers))
    monkeypatch.setattr(subscriptions, "_by_kind", dict(subscriptions._by_kind))
    kind = EventKind("thing.happened", "did a thing", "happened")
    monkeypatch.setitem(event_kinds._kinds, "thing.happened", kind)
    calls: list[int] = []

    @subscriptions.subscribe("test.kill", "thing.happened")
    def write(event: Event) -> None:
        Heartbeat.objects.create(name=f"told {event.pk}", at=event.at)
        calls.append(event.pk)
        if len(calls) == 1:
            pair.primary.kill()

    return calls


def test_server_closes_connections_of_a_host_that_is_gone(pair):
    expected = {"idle": "5", "interval": "3", "count": "3"}
    with transaction.atomic(), connection.cursor() as cursor:
        for name, value in expected.items():
            cursor.execute(f"SHOW tcp_keepalives_{name}")
            assert cursor.fetchone() == (value,)
        cursor.execute("SHOW tcp_user_timeout")
        assert cursor.fetchone() == ("10000",)
        transaction.set_rollback(True)
    with connection.cursor() as cursor:
        cursor.execute("SHOW tcp_keepalives_idle")
        assert cursor.fetchone() == ("5",)


def test_portal_goes_on_with_the_promoted_standby(pair, browser, killing_subscriber):
    assert browser.ask("POST", "/accounts/settings/", time_zone="Europe/Berlin")[0] == 302
    turns = BeatTurn(), BeatTurn()
    assert [turn.take() for turn in turns] == [True, False]
    at = timezone.now()
    target = User.objects.get(username="ann")
    events.publish(kind="thing.happened", target=target, by="test", at=at)
    delivery = Delivery.objects.get(subscriber="test.kill")
    with on_database(pair.standby.url):
        assert health.check_readiness()[0].detail == "a standby, which accepts no changes"

    with pytest.raises(DatabaseError):
        tasks.deliver(delivery_id=delivery.pk)  # kills the primary in the middle
    status, page = browser.ask("GET", "/accounts/settings/")
    assert (status, "cannot reach its database" in page) == (503, True)
    assert browser.ask("POST", "/accounts/settings/", time_zone="UTC")[0] == 503
    assert readiness_of(browser) == "no primary: the servers that answer accept no changes"
    assert [turn.take() for turn in turns] == [False, False]

    pair.standby.promote()
    outage = wait_for(lambda: browser.answers("/accounts/settings/"))
    assert outage < LONGEST_OUTAGE
    assert readiness_of(browser) == "ok"
    close_old_connections()
    assert User.objects.get(username="ann").time_zone == "Europe/Berlin"
    assert browser.ask("POST", "/accounts/settings/", time_zone="UTC")[0] == 302
    assert sorted(turn.take() for turn in turns) == [False, True]
    for turn in turns:
        turn.give_up()

    later = at + timedelta(minutes=1)
    assert not Heartbeat.objects.filter(name__startswith="told ").exists()
    assert list(outbox.EVENTS.due(later)) == [delivery]
    assert outbox.deliver(delivery_id=delivery.pk, at=later)
    assert not outbox.deliver(delivery_id=delivery.pk, at=later)
    assert Heartbeat.objects.filter(name__startswith="told ").count() == 1
    assert len(killing_subscriber) == 2
