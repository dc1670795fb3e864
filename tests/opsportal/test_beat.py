"""Of many beats, one sends the periodic tasks."""

import json
import os
import re
import signal
import time

import pytest
from django.db import connection
from redis import Redis

from apps.core.domain.health import BEAT, WAITING_BEAT
from apps.core.models import Heartbeat
from opsportal.beat import LOCK, BeatTurn
from tests.opsportal.test_processes import running, wait_for


@pytest.fixture
def turns(db):
    pair = BeatTurn(), BeatTurn()
    yield pair
    for turn in pair:
        turn.give_up()


def end_connection_of_holder() -> None:
    """End the holder's connection, as a restart of PostgreSQL or a failover does."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_locks"
            " WHERE locktype = 'advisory' AND classid = %s AND granted"
            " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
            [LOCK],
        )
        assert cursor.fetchall() == [(True,)]


def test_one_has_the_turn_until_it_gives_it_up(turns):
    first, second = turns
    assert [first.take(), second.take(), first.take(), second.take()] == [True, False, True, False]
    first.give_up()
    wait_for(second.take)  # once PostgreSQL has seen the end of the connection
    assert not first.take()


def test_lost_connection_is_a_lost_turn(turns):
    first, second = turns
    assert first.take()
    end_connection_of_holder()
    wait_for(second.take)
    assert not first.take()
    assert not first.take(), "it has connected again, and waits"
    second.give_up()
    wait_for(first.take)


def test_server_that_became_read_only_gives_no_turn(turns):
    first, second = turns
    assert first.take()
    with first._connection.cursor() as cursor:
        cursor.execute("SET SESSION default_transaction_read_only = on")
    second._connection.settings_dict = read_only_settings(second)
    assert first.take(), "it has connected again, as to another server"
    first.give_up()
    assert not second.take()
    assert not second.take()
    wait_for(first.take)


def read_only_settings(turn: BeatTurn) -> dict[str, object]:
    settings = turn._connection.settings_dict
    options = {**settings["OPTIONS"], "options": "-c default_transaction_read_only=on"}
    return {**settings, "OPTIONS": options}


def test_nobody_has_the_turn_without_the_database(turns):
    turn, _ = turns
    turn._connection.settings_dict = {**turn._connection.settings_dict, "PORT": "1"}
    assert not turn.take()


@pytest.fixture
def queue():
    """A database of Redis that no worker of another test reads."""
    url = re.sub(r"db=\d+$", "db=9", os.environ["REDIS_URL"])
    with Redis.from_url(url) as redis:
        redis.url = url
        redis.delete("default")
        yield redis
        redis.flushdb()


def take_senders(queue) -> set[int]:
    """Return the process ids of those who sent the messages that waited, and drop these."""
    messages = []
    while message := queue.lpop("default"):
        messages.append(json.loads(message))
    # Celery writes `gen123@host`.
    origins = [message["headers"]["origin"] for message in messages]
    return {int(re.match(r"gen(\d+)@", origin)[1]) for origin in origins}


@pytest.mark.django_db(transaction=True)
def test_second_beat_sends_nothing_until_the_first_is_killed(tmp_path, queue):
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    beat = ("beat", "--pidfile=")
    waiting = Heartbeat.objects.filter(name__startswith=WAITING_BEAT)
    with running(tmp_path / "first/log", *beat, REDIS_URL=queue.url) as first:
        wait_for(lambda: take_senders(queue) == {first.pid})
        with running(tmp_path / "second/log", *beat, REDIS_URL=queue.url) as second:
            wait_for(waiting.exists)
            time.sleep(6)  # longer than one waits between two tries
            assert take_senders(queue) == {first.pid}
            first.send_signal(signal.SIGKILL)
            first.wait()
            take_senders(queue)
            wait_for(lambda: take_senders(queue) == {second.pid})
            wait_for(lambda: not waiting.exists())
            assert Heartbeat.objects.filter(name=BEAT).exists()
            second.terminate()
            assert second.wait(60) == 0
