"""The Elasticsearch sink against a bulk call: `python -m benchmarks.archive_elasticsearch
[--jobs N] [--rounds N]`.

A real Elasticsearch on this host receives the same documents, with the same ids and mapping, from
the client's `elasticsearch.helpers.bulk`, which gets them ready-made, and from the sink as a worker
runs it, which builds them from captured jobs, batch by batch. Rounds alternate, after one warm-up
round of each; the best round of each is compared, as the least disturbed. Jobs are those of
`benchmarks.archive_capture`.
"""

import argparse
import json
import os
import time
from contextlib import closing

import django
from elasticsearch import Elasticsearch, helpers

from benchmarks.elasticsearch_server import elasticsearch
from benchmarks.spool import captured_jobs
from dev.elasticsearch import VERSION

BATCH_JOBS = 500  # about 3 MB, which workers write at once
SETTINGS = {
    "SECRET_KEY": "for the benchmarks alone: fifty characters and more, none of them secret",
    "DATABASE_URL": "postgresql://none/none",
    "REDIS_URL": "redis://none",
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--codec", default="default", help="of both: default or best_compression (%(default)s)"
    )
    parser.add_argument(
        "--heap", type=int, default=1024, metavar="MB", help="memory of the server (%(default)s MB)"
    )
    arguments = parser.parse_args()
    # Nothing here connects to it.
    os.environ |= SETTINGS | {"DJANGO_SETTINGS_MODULE": "opsportal.settings"}
    django.setup()
    with elasticsearch(arguments.heap) as server:
        figures = measure(server, arguments)
    print(json.dumps(figures, indent=2))


def measure(server, arguments):
    jobs = captured_jobs(arguments.jobs)
    client = Elasticsearch(server.url, request_timeout=60)
    rates = {"bare": [], "sink": []}
    for number in range(arguments.rounds + 1):
        for name in ("bare", "sink") if number % 2 else ("sink", "bare"):
            index = f"{name}-{number}"
            set_up(client, index, arguments.codec)
            seconds = {"bare": write_bare, "sink": write_sink}[name](client, server, index, jobs)
            client.indices.refresh(index=index)
            assert client.count(index=index)["count"] == len(jobs)
            size = client.indices.stats(index=index)["_all"]["total"]["store"]["size_in_bytes"]
            client.indices.delete(index=index)
            if number:
                rates[name].append(round(len(jobs) / seconds))
    return {
        "elasticsearch": VERSION,
        "jobs": len(jobs),
        "bytes_a_job": sum(job.size_bytes for job in jobs) // len(jobs),
        "bytes_a_job_on_disk": size // len(jobs),
        "bare_per_second": rates["bare"],
        "sink_per_second": rates["sink"],
        "of_bare": round(max(rates["sink"]) / max(rates["bare"]), 2),
    }


def set_up(client, index, codec):
    """Create an index with the sink's mapping."""
    from apps.archive.sinks.elasticsearch.documents import MAPPINGS

    client.indices.create(
        index=index, mappings=MAPPINGS, settings={"number_of_replicas": 0, "codec": codec}
    )


def write_bare(client, server, index, jobs):
    from apps.archive.sinks.elasticsearch.documents import document, document_id

    actions = [{"_index": index, "_id": document_id(job), "_source": document(job)} for job in jobs]
    began = time.perf_counter()
    helpers.bulk(client, actions)
    return time.perf_counter() - began


def write_sink(client, server, index, jobs):
    from apps.archive.sinks.registry import open_sink

    with closing(open_sink(f"elasticsearch://127.0.0.1:{server.port}/{index}?setup=no")) as sink:
        began = time.perf_counter()
        for start in range(0, len(jobs), BATCH_JOBS):
            assert not sink.write(jobs[start : start + BATCH_JOBS])
        return time.perf_counter() - began


if __name__ == "__main__":
    main()
