"""The message that capture sends to workers without Celery, as Celery's own library reads it."""

import os
import time
from contextlib import closing
from urllib.parse import unquote, urlsplit

import pytest
from kombu import Connection

from capture.portals import broker as broker_module
from capture.portals.broker import MOST_WAITING, QUEUE, TASK, Broker

DATABASE = 9


@pytest.fixture
def url():
    """The Redis of the tests, with a database of its own."""
    given = urlsplit(os.environ["REDIS_URL"])
    assert given.scheme == "unix"
    return f"unix://{given.path}?db={DATABASE}"


@pytest.fixture
def queue(url):
    with Connection(
        f"redis+socket://{unquote(urlsplit(url).path)}?virtual_host={DATABASE}"
    ) as connection:
        channel = connection.default_channel
        channel.client.flushdb()
        yield lambda: channel.basic_get(QUEUE, no_ack=True)
        channel.client.flushdb()


def test_message_is_a_task_of_celery(url, queue):
    with closing(Broker(url)) as broker:
        broker.wake()
    message = queue()
    assert message.payload == [[], {}, {}]
    assert (message.headers["task"], message.properties["correlation_id"]) == (
        TASK,
        message.headers["id"],
    )
    assert queue() is None


def test_no_more_messages_than_workers_can_use(url, queue):
    with closing(Broker(url)) as broker:
        for _ in range(2 * MOST_WAITING):
            broker.wake()
    assert sum(1 for _ in iter(queue, None)) == MOST_WAITING


@pytest.mark.parametrize("url", ["unix:///nowhere?db=0", "redis://127.0.0.1:1/0"])
def test_broker_that_is_away_costs_a_line_and_no_time(url, caplog):
    began = time.monotonic()
    with closing(Broker(url)) as broker:
        for _ in range(3):
            broker.wake()
    assert len([message for message in caplog.messages if "no worker is woken" in message]) == 1
    assert time.monotonic() - began < 5


def test_connection_that_was_lost_is_made_anew(url, queue, monkeypatch):
    monkeypatch.setattr(broker_module, "_PAUSE_SECONDS", 0.0)
    with closing(Broker(url)) as broker:
        broker.wake()
        broker._stream.close()
        broker.wake()
        broker.wake()
    assert sum(1 for _ in iter(queue, None)) == 2


def test_without_a_url_nothing_is_sent():
    Broker("").wake()
