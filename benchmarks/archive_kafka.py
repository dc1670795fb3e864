"""Throughput of the Kafka sink against a bare producer:
`python -m benchmarks.archive_kafka [--jobs N] [--rounds N]`.

A real Kafka on this host receives the same messages from a bare producer with the same settings,
which gets them encoded and waits once at the end, and from the sink as a worker runs it: batch by
batch, each acknowledged before it counts as written, while the next is started. Both connect before
the clock starts. Rounds alternate, and each is long enough (60,000 messages, some seconds) to even
out disturbances by the host; the result is the median of the rounds' ratios, which a single outlier
does not change. Jobs are those of `benchmarks.archive_capture`.
"""

import argparse
import gc
import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from statistics import median

import django
from confluent_kafka import Producer

from benchmarks.spool import captured_jobs
from tests.programs.kafka_server import BIN, KafkaServer, stop_when_gone

BATCH_JOBS = 500  # 3 MB of such jobs, which workers write at once


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=60_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--compression", default="zstd", help="of both (%(default)s)")
    arguments = parser.parse_args()
    os.environ |= {
        "DJANGO_SETTINGS_MODULE": "opsportal.settings",
        "DATABASE_URL": "postgresql://not/used",
        "REDIS_URL": "redis://not/used",
        "SECRET_KEY": "for the benchmarks alone: fifty characters and more, none of them secret",
    }
    django.setup()
    directory = Path(tempfile.mkdtemp(prefix="opsportal-benchmark-"))
    watchdog = stop_when_gone(directory)
    try:
        subprocess.run([BIN / "kafka-up", directory], check=True)
        figures = measure(KafkaServer(directory), arguments)
    finally:
        watchdog.communicate(timeout=60)
        shutil.rmtree(directory, ignore_errors=True)
    print(json.dumps(figures, indent=2))


def measure(server, arguments):
    from apps.archive.sinks.registry import open_sink

    jobs = captured_jobs(arguments.jobs)
    options = f"?compression={arguments.compression}"
    # The broker warms up.
    produce(server, jobs[:BATCH_JOBS], server.create_topic(), arguments.compression)
    bare, sink = [], []
    gc.freeze()  # as the process of a sink in capture does
    for _ in range(arguments.rounds):
        topic = server.create_topic()
        bare.append(len(jobs) / produce(server, jobs, topic, arguments.compression))
        topic = server.create_topic()
        sink.append(
            len(jobs) / write(open_sink(f"kafka://{server.bootstrap}/{topic}{options}"), jobs)
        )
        assert len(server.messages(topic)) == len(jobs) + 1
    ratios = [ours / theirs for ours, theirs in zip(sink, bare, strict=True)]
    return {
        "jobs": len(jobs),
        "compression": arguments.compression,
        "bare_producer_per_second": [round(rate) for rate in bare],
        "sink_per_second": [round(rate) for rate in sink],
        "of_bare_producer_by_round": [round(ratio, 2) for ratio in ratios],
        "of_bare_producer": round(median(ratios), 2),
    }


def produce(server, jobs, topic, compression):
    """Return the time of a bare producer; messages are encoded before the clock starts."""
    from apps.archive.sinks.base import SinkURL
    from apps.archive.sinks.kafka import connection, message

    messages = [(message.key(job), message.value(job), message.headers(job)) for job in jobs]
    url = SinkURL.parse(f"kafka://{server.bootstrap}/{topic}?compression={compression}")
    producer = Producer(connection.configuration(url))
    failed = []
    producer.produce(topic, b"")
    producer.flush()
    began = time.perf_counter()
    for key, value, headers in messages:
        producer.produce(
            topic,
            value,
            key,
            headers=headers,
            on_delivery=lambda error, _: error and failed.append(error),
        )
        producer.poll(0)
    producer.flush()
    taken = time.perf_counter() - began
    assert not failed
    return taken


def write(sink, jobs):
    """Return the time of the sink."""
    sink.write(jobs[:1])
    batches = [jobs[first : first + BATCH_JOBS] for first in range(0, len(jobs), BATCH_JOBS)]
    began = time.perf_counter()
    for batch in batches:
        assert sink.write(batch) == {}
    taken = time.perf_counter() - began
    sink.close()
    return taken


if __name__ == "__main__":
    main()
