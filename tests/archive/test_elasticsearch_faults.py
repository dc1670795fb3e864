"""Capture under load, with a real Elasticsearch that is killed, hangs, stays away or has too much to do."""

import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from apps.archive.capture.capture import Capture
from apps.archive.capture.delivery import drain as drain_module
from apps.archive.capture.journal.journal import Journal
from apps.archive.sinks.elasticsearch import sink as sink_module
from apps.archive.sinks.registry import open_sink
from apps.clusters.schedulers.slurm.spool import SlurmSpool
from tests.archive.capturing import capture_of, running
from tests.archive.conftest import wait_for
from tests.archive.elasticsearch_reading import job_of
from tests.archive.spool_writer import environment_bytes, write_job

pytestmark = [pytest.mark.elasticsearch, pytest.mark.slow, pytest.mark.xdist_group("elasticsearch")]


@pytest.fixture
def server(elasticsearch):
    elasticsearch.start()
    yield elasticsearch
    elasticsearch.clear()


class Load:
    """Submits jobs, about 80 a second, until told to stop; each has bytes of its own."""

    def __init__(self, spool):
        self._spool = spool
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._submit)
        self.submitted = 0

    def _submit(self):
        while not self._stopping.wait(0.012):
            number = self.submitted + 1
            write_job(self._spool, number, script=script(number), variables=variables(number))
            self.submitted = number

    def start(self):
        self._thread.start()

    def stop(self):
        self._stopping.set()
        self._thread.join()


def script(number):
    return b"#!/bin/sh\n# \xff %d \xc3\xa9\n" % number + b"srun ./simulate --seed %d\n" % number * 40


def variables(number):
    return [("USER", "ana"), ("NUMBER", str(number)), ("BYTES", b"\xe9=\xff")]


@pytest.fixture
def capture(server, spool, tmp_path, monkeypatch) -> Iterator[Capture]:
    monkeypatch.setattr(drain_module, "LONGEST_DELAY_SECONDS", 2.0)
    sink = open_sink(f"elasticsearch://{server.host}/jobs?replicas=0")
    with (
        closing(Journal(tmp_path / "journal", sinks=[sink.name])) as journal,
        running(capture_of(SlurmSpool(spool), journal, sink)) as capture,
    ):
        yield capture


@contextmanager
def load_on(capture, spool, server):
    """Submit jobs all the time; afterwards every one of them is there, once, with its bytes."""
    load = Load(spool)
    load.start()
    try:
        wait_for(lambda: load.submitted > 100 and behind(capture) < capture.captured)
        yield load
    finally:
        load.stop()
    wait_for(lambda: capture.captured == load.submitted and behind(capture) == 0, seconds=120)
    assert next(iter(capture.report().sinks.values())).last_refused == ()
    kept = [job_of(document) for document in server.documents("jobs").values()]
    found = sorted((int(job.job_id), job.script, job.environment) for job in kept)
    assert found == [(n, script(n), environment_bytes(variables(n))) for n in range(1, load.submitted + 1)]


def behind(capture):
    return next(iter(capture.report().sinks.values())).behind


def last_error(capture):
    return next(iter(capture.report().sinks.values())).last_error


def test_killed_back_with_too_much_to_do_killed_again_and_away_for_a_minute(server, spool, capture):
    """In between it takes 100 KB at a time, and answers 429 to more."""
    with load_on(capture, spool, server) as load:
        server.kill()
        wait_for(lambda: "Connection refused" in last_error(capture))
        with server.configured(indexing_pressure__memory__limit="100kb"):
            lacking, kept = load.submitted, next(iter(capture.report().sinks.values())).written
            wait_for(lambda: next(iter(capture.report().sinks.values())).written > kept + 400)
            assert load.submitted > lacking
            server.kill()
            before = load.submitted
            time.sleep(60)
            assert load.submitted > before


def test_hanging_for_a_while(server, spool, capture, monkeypatch):
    """What has timed out may have been done nevertheless, later: it is the same document."""
    monkeypatch.setattr(sink_module, "REQUEST_SECONDS", 1.0)
    with load_on(capture, spool, server) as load:
        before = load.submitted
        with server.frozen():
            wait_for(lambda: "timed out" in last_error(capture))
            wait_for(lambda: load.submitted > before + 100)
            time.sleep(3)
        wait_for(lambda: not last_error(capture))


def test_full_disk_and_freed(server, spool, capture):
    """At its flood stage a server sets this block; it lifts it when there is room."""
    with load_on(capture, spool, server):
        server.call("PUT", "/jobs/_settings", {"index.blocks.read_only_allow_delete": True})
        wait_for(lambda: "blocked" in last_error(capture))
        server.call("PUT", "/jobs/_settings", {"index.blocks.read_only_allow_delete": None})
