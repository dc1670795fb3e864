"""How fast the search of logs is in both engines: `python -m benchmarks.search [--logs N]`.

Fills a PostgreSQL with N jobs of 20 days and the kept ends of their logs: 50 lines each, most of
them lines of the stage with other numbers, some rare, and an error in each tenth, which failed.
Indexes them in PostgreSQL and in a real Elasticsearch of one node, as the worker does that fills an
index. Then visits the page of the search with words and phrases that all, many, few and no logs
have, as a shifter, and compares the answers of the engines. Prints one JSON object last: logs
indexed in a second, bytes of a log in the index, and the times of words and of phrases in
milliseconds, for each engine. Fails above 150 ms at p95 for words, above 300 ms for phrases, and if
an answer differs. With `--directory` the database and its index are kept, and used again.
"""

import argparse
import json
import random
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from benchmarks.database import database, set_up_django
from benchmarks.elasticsearch_server import elasticsearch
from benchmarks.page_visits import shifter, visit_pages
from benchmarks.where_else import JOBS, STAGES, job_values

LINES_OF_STAGE, LINES_A_LOG = 60, 45
RARE_LINES, RARE_A_LOG = 20_000, 4
#: One log in so many has the line that few logs have.
FEW = 2_000
#: Logs that are stored at once.
BATCH = 2_000
LIMITS_MS = {"words": 150, "phrases": 300}
QUESTIONS = {
    "words": (
        "record",
        "stage3",
        "module17",
        "carrier",
        "nowhere",
        "record carrier",
        "record -stage3",
        "fatal state:failed stage:stage3",
    ),
    "phrases": (
        '"Begin processing record"',
        '"FatalRootError: cannot open"',
        '"carrier lost on eth7"',
        '"carrier lost on eth9"',
        '"module17 of stage3"',
        '"cannot open" -carrier',
    ),
}
#: Hits that are compared for each question.
COMPARED = 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logs", type=int, default=10_000_000)
    parser.add_argument("--visits", type=int, default=20, help="of each page")
    parser.add_argument(
        "--heap", type=int, default=2048, metavar="MB", help="of Elasticsearch (%(default)s MB)"
    )
    parser.add_argument("--directory", type=Path)
    options = parser.parse_args()
    with database(options.directory) as (base, url):
        set_up_django(base, url, STATIC_DIR=str(base / "static"), LOG_LEVEL="ERROR")
        from django.core.management import call_command

        from apps.diagnosis.models import LogExcerpt

        call_command("collectstatic", verbosity=0, interactive=False)
        if not LogExcerpt.objects.exists():
            fill(options.logs)
        figures = {"logs": LogExcerpt.objects.count()}
        in_postgresql = measure("postgresql", "", options.visits)
        with elasticsearch(options.heap) as server:
            search_url = f"elasticsearch://127.0.0.1:{server.port}/site?replicas=0"
            in_elasticsearch = measure("elasticsearch", search_url, options.visits)
    differing = []
    for question, answer in in_postgresql.pop("answers").items():
        if in_elasticsearch["answers"][question] != answer:
            differing.append(question)
    in_elasticsearch.pop("answers")
    figures |= {
        "postgresql": in_postgresql,
        "elasticsearch": in_elasticsearch,
        "differing": differing,
    }
    print(json.dumps(figures))
    is_slow = False
    for engine in (in_postgresql, in_elasticsearch):
        for kind, limit in LIMITS_MS.items():
            is_slow = is_slow or engine[kind]["p95_ms"] > limit
    raise SystemExit(bool(differing) or is_slow)


def fill(logs: int) -> None:
    """Store the jobs, and what the harvest keeps of their logs."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(JOBS, job_values(logs))
    started = time.perf_counter()
    chance = random.Random(1)

    def texts_of(job: Any) -> dict[str, bytes]:
        text = log_of(job.raw_id, is_failed=job.state == "failed", chance=chance)
        return {"stderr": text}

    store_logs(texts_of)
    print(f"{logs} logs stored in {time.perf_counter() - started:.0f} s", flush=True)
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")


def store_logs(texts_of: Callable[[Any], Mapping[str, bytes]]) -> None:
    """Store what the harvest keeps of each job's logs, which `texts_of` returns by stream."""
    from apps.diagnosis.domain.reading.excerpts import excerpt_of
    from apps.diagnosis.engine.base import Block
    from apps.diagnosis.enums import HarvestState, Stream
    from apps.diagnosis.models import LogExcerpt, LogHarvest
    from apps.jobs.models import Job

    last = 0
    while jobs := list(Job.objects.filter(pk__gt=last).order_by("pk")[:BATCH]):
        last = jobs[-1].pk
        harvests = []
        for job in jobs:
            harvests.append(
                LogHarvest(
                    job=job,
                    state=HarvestState.DONE,
                    due_at=job.ended_at,
                    harvested_at=job.ended_at,
                )
            )
        LogHarvest.objects.bulk_create(harvests)
        excerpts = []
        for job, harvest in zip(jobs, harvests, strict=True):
            for stream, text in texts_of(job).items():
                block = Block(text, 0, len(text), 1, Stream(stream))
                excerpts.append(excerpt_of(harvest, f"/logs/{job.job_id}.{stream}", block))
        LogExcerpt.objects.bulk_create(excerpts)


def log_of(number: int, *, is_failed: bool, chance: random.Random) -> bytes:
    """Return the lines of the log of a job."""
    stage = number % STAGES
    lines = []
    for place in sorted(chance.sample(range(LINES_OF_STAGE), LINES_A_LOG)):
        event = chance.randrange(10**6)
        lines.append(
            f"Begin processing record {event} at module{place} of stage{stage} "
            f"in {chance.random():.3f} s"
        )
    for _ in range(RARE_A_LOG):
        lines.append(f"note{int(chance.random() ** 4 * RARE_LINES)}: calibration tag changed")
    if number % FEW == 0:
        lines.append(f"NETDEV carrier lost on eth7 after {number} packets")
    if is_failed:
        lines.append(f"FatalRootError: cannot open /pnfs/nova/raw_{number}.root, fatal")
    return "\n".join(lines).encode()


def measure(name: str, search_url: str, visits: int) -> dict[str, Any]:
    """Return the figures of one engine, and its answer to each question."""
    from django.conf import settings

    from apps.search.domain.indexing.fill import index_kept_logs

    settings.SEARCH_URL = search_url
    started = time.perf_counter()
    indexed = 0
    while batch := index_kept_logs(batches=100, at=datetime.now(UTC)):
        indexed += batch
    seconds = time.perf_counter() - started
    figures: dict[str, Any] = {"bytes_a_log": bytes_a_log(search_url)}
    if indexed:
        figures["indexed_a_second"] = round(indexed / seconds)
    for kind, questions in QUESTIONS.items():
        addresses = []
        for question in questions:
            addresses.append("/search/?" + urlencode({"q": f"{question} in:log"}))
        figures[kind] = visit_pages(addresses, visits)
        print(name, kind, figures[kind]["p95_ms"], "ms", flush=True)
    figures["answers"] = answers([*QUESTIONS["words"], *QUESTIONS["phrases"]])
    return figures


def bytes_a_log(search_url: str) -> int:
    """Return the bytes of the index, divided by the number of logs."""
    from django.db import connection
    from elasticsearch import Elasticsearch

    from apps.diagnosis.models import LogExcerpt

    if search_url:
        host = search_url.removeprefix("elasticsearch://").partition("/")[0]
        client = Elasticsearch(f"http://{host}", request_timeout=120)
        client.indices.refresh(index="site-*")
        stats = client.indices.stats(index="site-*", metric="store")
        size = stats["_all"]["total"]["store"]["size_in_bytes"]
    else:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_total_relation_size('search_logwords')")
            (size,) = cursor.fetchone()
    return round(size / LogExcerpt.objects.count())


def answers(questions: Sequence[str]) -> dict[str, list[int]]:
    """Return the jobs of the newest hits of each question, without a limit of time."""
    from apps.search.domain.engine.base import SearchScope
    from apps.search.domain.engine.chosen import engine_in_use
    from apps.search.domain.query.parser import parse

    scope = SearchScope(shifter(), datetime.now(UTC))
    jobs_by_question = {}
    for question in questions:
        query = parse(f"{question} in:log")
        hits = engine_in_use().search(query, scope, size=COMPARED, seconds=600)
        jobs_by_question[question] = [hit.key for hit in hits.rows]
    return jobs_by_question


if __name__ == "__main__":
    main()
