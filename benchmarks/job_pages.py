"""How fast pages, explorer questions and API lists of jobs are:
`python -m benchmarks.job_pages --jobs 1000000`.

Prints one JSON object last: `p95_ms` of all requests, `first_p95_ms` of the first visit of each,
`slowest`, what filling took, and beside them the p95 of the same questions on raw rows:
`postgres_p95_ms`, and `duckdb_p95_ms` if duckdb is installed. With `--directory` the database is
kept, and used again.
"""

import argparse
import importlib.util
import json
import os
import time
from datetime import UTC, datetime
from pathlib import Path
from statistics import quantiles
from urllib.parse import parse_qs

from django.core.management import call_command

from benchmarks.database import database, set_up_django

QUESTIONS = [
    f"/statistics/?measure={measure}&by={by}&period={period}"
    for period in ("24h", "7d", "30d", "90d")
    for measure, by in (
        ("wasted_core_hours", "verdict,cause"),
        ("failures", "exit_code,signal"),
        ("failure_rate", "site,request"),
        ("failure_rate", "host"),
        ("failures", "site,hour"),
        ("cpu_efficiency", "stage,release,cpu_model"),
        ("queue_time", "cluster,hour"),
        ("core_hours", "user"),
        ("jobs", "hour,weekday"),
        ("memory", "request,stage"),
    )
]
PAGES = ["/jobs/", "/jobs/?state=any_failure", "/jobs/?host=wn-0306", "/jobs/?user=user007"]
LISTS = [
    "/api/v1/jobs/",
    "/api/v1/jobs/?state=any_failure&experiment=EXP03",
    *(each.replace("/statistics/", "/api/v1/statistics/") for each in QUESTIONS),
    "/api/v1/statistics/?by=host&period=90d&exit_code=65",
    "/api/v1/statistics/?by=stage&period=90d&host=wn-0306",
]


#: Dimensions as expressions on raw rows; other questions are not compared.
RAW = {
    "exit_code": "exit_code",
    "signal": "signal",
    "site": "site_id",
    "request": "request_key",
    "host": "host",
    "stage": "stage",
    "release": "release",
    "cpu_model": "cpu_model",
    "cluster": "cluster_id",
    "user": '"user"',
    "hour": "extract(hour FROM ended_at)",
    "weekday": "extract(isodow FROM ended_at)",
}
RAW_COLUMNS = (
    "exit_code",
    "signal",
    "site_id",
    "request_key",
    "host",
    "stage",
    "release",
    "cpu_model",
    "cluster_id",
    '"user"',
    "ended_at",
    "state",
    "experiment_id",
    "wall_seconds",
    "cpus",
    "cpu_seconds",
)
PERIODS = {"24h": 1, "7d": 7, "30d": 30, "90d": 90}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--visits", type=int, default=3)
    parser.add_argument(
        "--directory", type=Path, help="Keeps the database; one that is there is used."
    )
    options = parser.parse_args()
    with database(options.directory) as (base, url):
        set_up_django(
            base,
            url,
            STATIC_DIR=str(base / "static"),
            PORTAL_URL="http://localhost",
            LOG_LEVEL="ERROR",
        )
        call_command("collectstatic", verbosity=0, interactive=False)
        print(json.dumps(measured(options.jobs, options.visits, base)))


def measured(count, visits, base):
    from apps.jobs.models import Job

    filled = filling(count) if not Job.objects.exists() else {}
    first, taken = visited(visits)
    best = {address: round(1000 * min(each)) for address, each in taken.items()}
    slowest = sorted(best, key=best.get, reverse=True)[:8]
    return {
        "jobs": Job.objects.count(),
        **filled,
        "p95_ms": p95([seconds for each in taken.values() for seconds in each]),
        "first_p95_ms": p95(first),
        "slowest": {address: best[address] for address in slowest},
        "postgres_p95_ms": p95(on_postgres()),
        "duckdb_p95_ms": p95(on_duckdb(base)),
        "load": os.getloadavg()[0],
    }


def filling(count):
    from benchmarks.job_rows import Jobs

    jobs, begun = Jobs(datetime.now(UTC)), time.monotonic()
    jobs.add(count)
    copied = time.monotonic()
    jobs.count()
    return {"copy_s": round(copied - begun), "count_s": round(time.monotonic() - copied)}


def visited(visits):
    """Return the seconds of the first visit of each address, and of those after it."""
    from django.test import Client

    from apps.accounts.enums import Role
    from apps.accounts.models import Membership, User

    user, _ = User.objects.get_or_create(username="visitor")
    Membership.objects.get_or_create(user=user, role=Role.SHIFTER)
    client = Client()
    client.force_login(user, "django.contrib.auth.backends.ModelBackend")
    client.get("/jobs/")  # imports what pages need
    first, taken = [], {}
    for address in [*PAGES, *QUESTIONS, *LISTS]:
        first.append(seconds_of(client, address))
        taken[address] = [seconds_of(client, address) for _ in range(visits)]
    return first, taken


def on_postgres():
    """Yield the seconds of each question on the table of jobs."""
    from django.db import connection

    with connection.cursor() as cursor:
        for sql in raw_questions("jobs_job"):
            yield _timed(lambda sql=sql: (cursor.execute(sql), cursor.fetchall()))


def on_duckdb(base):
    """Yield the same on the same rows in DuckDB; nothing if it is not installed."""
    if importlib.util.find_spec("duckdb") is None:
        return
    import duckdb
    from django.db import connection

    there = duckdb.connect(str(base / "jobs.duckdb"))
    if not there.sql(
        "SELECT 1 FROM information_schema.tables WHERE table_name = 'jobs'"
    ).fetchall():
        rows = base / "jobs.csv"
        copy_out = (
            f"COPY (SELECT {', '.join(RAW_COLUMNS)} FROM jobs_job) TO STDOUT (FORMAT csv, HEADER)"
        )
        with connection.cursor() as cursor, rows.open("wb") as file, cursor.copy(copy_out) as copy:
            for block in copy:
                file.write(block)
        there.sql(f"CREATE TABLE jobs AS SELECT * FROM read_csv('{rows}')")
        rows.unlink()
    for sql in raw_questions("jobs"):
        yield _timed(lambda sql=sql: there.sql(sql).fetchall())


def raw_questions(table):
    """Yield the questions as SQL, with the figures that an answer has."""
    for address in QUESTIONS:
        asked = parse_qs(address.partition("?")[2])
        by = asked["by"][0].split(",")
        if not RAW.keys() >= {*by}:
            continue
        groups = ", ".join(RAW[name] for name in by)
        yield (
            f"SELECT {groups}, count(*), sum(CASE WHEN state = 'failed' THEN 1 ELSE 0 END), "
            "sum(wall_seconds * cpus), "
            "sum(CASE WHEN state = 'failed' THEN wall_seconds * cpus ELSE 0 END), "
            f"sum(cpu_seconds) FROM {table} "
            f"WHERE ended_at >= (SELECT max(ended_at) FROM {table}) - interval "
            f"'{PERIODS[asked['period'][0]]} days' "
            f"GROUP BY {groups} ORDER BY 3 DESC LIMIT 1000"
        )


def p95(seconds):
    times = sorted(1000 * second for second in seconds)
    return round(quantiles(times, n=20)[-1]) if len(times) > 1 else None


def seconds_of(client, address):
    def visit():
        assert client.get(address).status_code == 200, address

    return _timed(visit)


def _timed(call):
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


if __name__ == "__main__":
    main()
