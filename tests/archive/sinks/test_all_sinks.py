"""Capture and workers for four real sinks: they are killed, and so is each sink in turn,
while jobs go on arriving.
"""

import random
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from django.db import connection

from apps.archive.domain.store.contents import read_blob
from apps.archive.models import ArchivedJob, IntakeBatch
from tests.archive.conftest import wait_for
from tests.archive.sinks.elasticsearch_reading import job_of
from tests.archive.sinks.kafka_reading import jobs_of
from tests.archive.spool_writer import environment_bytes, script_of
from tests.archive.workers import archive_worker, beat
from tests.capture.test_capture_faults import writing

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.elasticsearch,
    pytest.mark.slow,
    pytest.mark.xdist_group("kafka"),
    pytest.mark.timeout(900),
]


DSN = {"host", "port", "user", "password"}


@pytest.fixture
def elasticsearch_index(elasticsearch):
    elasticsearch.start()
    yield elasticsearch
    elasticsearch.clear()


@contextmanager
def store_away():
    """Nobody may connect to the database, and who was is thrown out."""
    name = connection.settings_dict["NAME"]
    connection.close()
    given = {key: value for key, value in connection.get_connection_params().items() if key in DSN}
    with psycopg.connect(**given | {"dbname": "postgres"}, autocommit=True) as other:
        other.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')
        try:
            other.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name]
            )
            yield
        finally:
            other.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true')


@contextmanager
def directory_away(directory):
    """Its file system is not mounted, and in its place is what no process can make a directory of.

    A process of a worker makes the directory with its first file, and may come to that only now.
    """
    directory.rename(f"{directory}.away")
    directory.touch()
    try:
        yield
    finally:
        directory.unlink()
        Path(f"{directory}.away").rename(directory)


@contextmanager
def killed(server):
    server.kill()
    try:
        yield
    finally:
        server.start()


def test_each_job_is_in_every_sink_once_whatever_is_killed(
    portal, spool, tmp_path, kafka, elasticsearch_index
):
    topic, tree, moments = kafka.create_topic(), tmp_path / "tree", random.Random(7)
    tree.mkdir()
    sinks = (
        "store:",
        f"files://{tree}?period=yearly",
        f"elasticsearch://{elasticsearch_index.host}/jobs?replicas=0",
        f"kafka://{kafka.bootstrap}/{topic}",
    )
    environment = portal.environment | {"ARCHIVE_SINKS": " ".join(sinks)}
    harms = (lambda: killed(kafka), store_away, lambda: directory_away(tree))
    with beat(environment, tmp_path), archive_worker(environment, tmp_path) as worker:
        with ThreadPoolExecutor(1) as meanwhile, writing(spool, 0.03) as written:
            with portal.capturing(spool) as capture:
                time.sleep(moments.uniform(1, 2))
                elasticsearch_index.kill()
                capture.kill()
            back = meanwhile.submit(elasticsearch_index.start)  # which takes it the longest
            for harm in harms:
                with portal.capturing(spool) as capture:
                    time.sleep(moments.uniform(0.5, 1.5))
                    with harm():
                        time.sleep(moments.uniform(0.5, 1.5))
                        capture.kill()
                        worker.kill()
                worker.start()
            back.result()
        portal.capture_to_intake(spool)
        wait_for(lambda: not IntakeBatch.objects.exists(), seconds=120)

    expected = sorted((str(job_id), script_of(job_id), environment_bytes()) for job_id in written)
    rows = ArchivedJob.objects.select_related("script", "environment")
    assert (
        sorted((row.job_id, read_blob(row.script), read_blob(row.environment)) for row in rows)
        == expected
    )
    documents = [job_of(document) for document in elasticsearch_index.documents("jobs").values()]
    assert sorted((job.job_id, job.script, job.environment) for job in documents) == expected
    messages = jobs_of(kafka.messages(topic))  # some twice, of workers that were killed
    assert sorted({(job.job_id, job.script, job.environment) for job in messages}) == expected
    assert {path.name: path.read_bytes() for path in tree.glob("alps/*/job.*")} == {
        f"job.{job_id}_{kind}": content
        for job_id, *contents in expected
        for kind, content in zip(("script", "environment"), contents, strict=True)
    }
