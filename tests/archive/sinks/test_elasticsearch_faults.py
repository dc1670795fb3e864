"""Delivery under load, to a real Elasticsearch that is killed, hangs,
stays away or has too much to do.
"""

import threading
import time
from contextlib import contextmanager

import pytest
from django.db import connection

from apps.archive import delivery
from apps.archive.sinks.elasticsearch import connection as connection_module
from apps.core.domain.work import BackOff
from tests.archive.conftest import AWAY_SECONDS, wait_for
from tests.archive.delivering import delivering
from tests.archive.sinks.elasticsearch_reading import job_of
from tests.archive.spool_writer import environment_bytes
from tests.factories.archive import captured_job

pytestmark = [pytest.mark.elasticsearch, pytest.mark.slow, pytest.mark.xdist_group("elasticsearch")]


@pytest.fixture
def server(elasticsearch):
    elasticsearch.start()
    yield elasticsearch
    elasticsearch.clear()


class Load:
    """Hands jobs over, about 80 a second in batches of 8, until told to stop;
    each has bytes of its own.
    """

    def __init__(self, sink):
        self._sink = sink
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._hand_over)
        self.handed_over = 0

    def _hand_over(self):
        while not self._stopping.wait(0.1):
            numbers = range(self.handed_over + 1, self.handed_over + 9)
            self._sink.add([a_job(number) for number in numbers])
            self.handed_over += 8
        connection.close()

    def start(self):
        self._thread.start()

    def stop(self):
        self._stopping.set()
        self._thread.join()


def a_job(number):
    return captured_job(
        number, script=script(number), environment=environment_bytes(variables(number))
    )


def script(number):
    return (
        b"#!/bin/sh\n# \xff %d \xc3\xa9\n" % number + b"srun ./simulate --seed %d\n" % number * 40
    )


def variables(number):
    return [("USER", "ana"), ("NUMBER", str(number)), ("BYTES", b"\xe9=\xff")]


@pytest.fixture
def sink(server, settings, transactional_db, monkeypatch):
    monkeypatch.setattr(delivery, "BACK_OFF", BackOff((0.5, 1, 2)))
    with delivering(settings, f"elasticsearch://{server.host}/jobs?replicas=0") as sink:
        yield sink


@contextmanager
def load_on(sink, server):
    """Hand jobs over all the time; afterwards every one of them is there, once, with its bytes."""
    load = Load(sink)
    load.start()
    try:
        wait_for(lambda: load.handed_over > 100 and sink.written)
        yield load
    finally:
        load.stop()
    wait_for(lambda: sink.behind == 0, seconds=120)
    assert sink.refused() == []
    kept = [job_of(document) for document in server.documents("jobs").values()]
    stored = sorted((int(job.job_id), job.script, job.environment) for job in kept)
    assert stored == [
        (n, script(n), environment_bytes(variables(n))) for n in range(1, load.handed_over + 1)
    ]


def test_killed_back_with_too_much_to_do_killed_again_and_away_for_a_while(server, sink):
    """In between it takes 100 KB at a time, and answers 429 to more."""
    with load_on(sink, server) as load:
        server.kill()
        wait_for(lambda: "Connection refused" in sink.last_error)
        with server.configured(indexing_pressure__memory__limit="100kb"):
            lacking, kept = load.handed_over, sink.written
            wait_for(lambda: sink.written > kept + 400)
            assert load.handed_over > lacking
            server.kill()
            before = load.handed_over
            time.sleep(AWAY_SECONDS)
            assert load.handed_over > before


def test_hanging_for_a_while(server, sink, monkeypatch):
    """What has timed out may have been done nevertheless, later: it is the same document."""
    monkeypatch.setattr(connection_module, "REQUEST_SECONDS", 1.0)
    with load_on(sink, server) as load:
        before = load.handed_over
        with server.frozen():
            wait_for(lambda: "timed out" in sink.last_error)
            wait_for(lambda: load.handed_over > before + 100)
            time.sleep(3)
        wait_for(lambda: not sink.last_error)


def test_full_disk_and_freed(server, sink):
    """At its flood stage a server sets this block; it lifts it when there is room."""
    with load_on(sink, server):
        server.call("PUT", "/jobs/_settings", {"index.blocks.read_only_allow_delete": True})
        wait_for(lambda: "blocked" in sink.last_error)
        server.call("PUT", "/jobs/_settings", {"index.blocks.read_only_allow_delete": None})
