"""Speed of searches in the archive: `python -m benchmarks.archive_search [--scripts N]`.

Fills a dedicated PostgreSQL with synthetic jobs of 90 days (every third script is a resubmission;
word frequencies are realistic: a few words in every script, most in one), indexes their words as
the worker does, and runs the searches of the pages, each search and page 60 times, after one
warm-up visit. Prints the time in the database and of whole pages, each with its limit.
"""

import argparse
import hashlib
import json
import random
import statistics
import struct
import time
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from urllib.parse import urlencode

import psycopg

from benchmarks.database import database, set_up_django
from benchmarks.spool import User

DAYS = 90
NEWEST = datetime(2026, 11, 20, 12, tzinfo=UTC)
USERS = 200
REPEATS = 60
#: Words by the share of scripts that have them.
SHARES = {"word-in-1": 1.0, "word-in-17": 0.06, "word-in-40": 0.025, "word-in-100": 0.01, "word-in-400": 0.0025,
          "word-in-2000": 0.0005, "word-in-20000": 0.00005}  # fmt: skip
#: Searches of the database, and which page of theirs.
SEARCHES = (
    *(({"words": word}, 1) for word in (*SHARES, "nowhere")),
    ({"module": "gromacs/2023.3"}, 1),
    ({"words": "word-in-17 word-in-40"}, 1),
    ({"words": "word-in-100", "user": "user7"}, 1),
    ({"words": "word-in-17"}, 20),
)
DAY = NEWEST.date().isoformat()
#: Whole pages by their limit in ms.
VISITS = {
    100: ({"words": "word-in-17"}, {"words": "word-in-2000"}, {"words": "nowhere"}, {"job": "4711"},
          {"user": "user7"}, {}),
    200: ({"text": "ool7 --opt", "user": "user7"}, {"text": "in-20000", "since": DAY, "until": DAY},
          {"text": "no such", "user": "user7"}),
}  # fmt: skip
TABLES = {
    "words": ("archive_scriptwords",),
    "rest": ("archive_blob", "archive_archivedjob", "archive_dictionary"),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scripts", type=int, default=100_000)
    parser.add_argument(
        "--directory", type=Path, help="where to keep the database for another run (else temporary)"
    )
    arguments = parser.parse_args()
    with database(arguments.directory) as (base, url):
        set_up_django(base, url)
        figures = fill(url, arguments.scripts) if is_empty() else {}
        figures |= {"index": index(url)} | {"bytes_a_job": sizes(url, arguments.scripts)}
        print(json.dumps(figures, indent=2))
        ok = measure()
    raise SystemExit(0 if ok else 1)


def is_empty():
    from apps.archive.models import ArchivedJob

    return not ArchivedJob.objects.exists()


@cache
def user_of(number):
    return User(number)


def make_script(choose, user, number):
    """Return a script of 3 KB: the user's common part, an individual part and some words;
    or the user's last script.
    """
    last = user.last
    script, _ = user.submit(choose)
    if last and script is last[0]:
        return user.latest
    lines = [f"echo {word}" for word, share in SHARES.items() if choose.random() < share]
    lines += [
        f"module load gromacs/{2018 + choose.randrange(8)}.{choose.randrange(9)}",
        f"./finish --run {number}",
    ]
    user.latest = script.rstrip(b"\0") + "\n".join(lines).encode() + b"\n"
    return user.latest


def fill(url, scripts):
    """Copy the rows into the tables, compressed like those of the archive; return the duration."""
    from apps.archive.domain.store import compression
    from apps.archive.models import Dictionary
    from apps.clusters.domain import ensure_cluster

    began = time.perf_counter()
    cluster = ensure_cluster(name="benchmark", scheduler="slurm", by="benchmark", at=NEWEST)
    choose = random.Random(7)
    samples = [make_script(choose, user_of(number % USERS), -number) for number in range(1500)]
    trained = compression.train_dictionary_on(samples)
    dictionary = Dictionary.objects.create(kind="script", data=trained, trained_at=NEWEST)
    packer = compression.Compressor(compression.load_dictionary(trained))
    with psycopg.connect(url) as connection:
        environment = copy_environment(connection)
        copy_contents_and_jobs(
            connection, scripts, choose, packer, dictionary.pk, environment, cluster.pk
        )
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "SELECT setval('archive_blob_id_seq', (SELECT max(id) FROM archive_blob))"
        )
        connection.execute(
            "SELECT setval('archive_archivedjob_id_seq', (SELECT max(id) FROM archive_archivedjob))"
        )
        connection.execute("VACUUM ANALYZE")
    return {"scripts": scripts, "fill_seconds": round(time.perf_counter() - began)}


def copy_environment(connection):
    from apps.archive.domain.store import compression

    content = struct.pack("=I", 1) + b"USER=benchmark\0"
    values = (
        1,
        hashlib.sha256(content).digest(),
        "environment",
        len(content),
        compression.Compressor(None).compress(content),
    )
    connection.execute(
        "INSERT INTO archive_blob (id, sha256, kind, size_bytes, data) VALUES (%s, %s, %s, %s, %s)",
        values,
    )
    return len(content)


def copy_contents_and_jobs(
    connection, scripts, choose, packer, dictionary, environment_bytes, cluster
):
    jobs, keys = [], {}
    with connection.cursor().copy(
        "COPY archive_blob (id, sha256, kind, size_bytes, data, dictionary_id) FROM STDIN"
    ) as copy:
        for number in range(1, scripts + 1):
            user = choose.randrange(USERS)
            script = make_script(choose, user_of(user), number)
            (pk, last), size = keys.get(user, (0, None)), len(script)
            if last is not script:
                pk = number + 1
                keys[user] = (pk, script)
                copy.write_row(
                    (
                        pk,
                        hashlib.sha256(script).digest(),
                        "script",
                        size,
                        packer.compress(script),
                        dictionary,
                    )
                )
            submitted_at = NEWEST - timedelta(days=DAYS) * (1 - number / scripts)
            jobs.append((number, str(number), submitted_at, submitted_at, pk, size, f"user{user}"))
    columns = (
        'id, job_id, submitted_at, captured_at, script_id, script_bytes, "user", cluster_id, '
        "environment_id,"
        " environment_bytes, request_key, stage, masked_names, account, name, arguments, "
        "state, caveat"
    )
    with connection.cursor().copy(f"COPY archive_archivedjob ({columns}) FROM STDIN") as copy:
        for job in jobs:
            copy.write_row(
                (
                    *job,
                    cluster,
                    1,
                    environment_bytes,
                    "",
                    "",
                    "[]",
                    "physics",
                    "run",
                    "",
                    "completed",
                    "",
                )
            )


def index(url):
    from apps.archive.domain.search import word_index

    began = time.perf_counter()
    jobs = word_index.index_for(seconds=10**6, at=NEWEST)
    jobs += word_index.index_for(seconds=10**6, at=NEWEST)
    seconds = time.perf_counter() - began
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")
    return {"jobs": jobs, "jobs_per_second": round(jobs / seconds)}


def sizes(url, scripts):
    with psycopg.connect(url, autocommit=True) as connection:
        return {
            what: round(
                sum(
                    connection.execute("SELECT pg_total_relation_size(%s)", [table]).fetchone()[0]
                    for table in tables
                )
                / scripts
            )
            for what, tables in TABLES.items()
        }


def measure():
    """Run everything, print each with its limit; return whether all are within."""
    from django.test import Client, override_settings

    from apps.accounts.domain.roles import grant_role
    from apps.accounts.domain.users import ensure_user
    from apps.accounts.enums import Role
    from apps.accounts.models import User

    ensure_user(username="shifter", password_hash="!", by="benchmark", at=NEWEST)
    shifter = User.objects.get(username="shifter")
    grant_role(user=shifter, role=Role.SHIFTER, experiment=None, by="benchmark", at=NEWEST)
    plain = {"staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}}
    override_settings(STORAGES=plain).enable()
    client = Client()
    client.force_login(shifter)
    slow = [
        what
        for what, *limit_and_times in asked(client, shifter)
        if not report(what, *limit_and_times)
    ]
    return not slow


def asked(client, user):
    """Run everything; yield the name, the limit in ms, and the times in ms."""
    words = []
    for query, page in SEARCHES:
        times = times_in_database(query, user, page)
        words += times
        yield f"page {page} of {urlencode(query)}", 10, times
    yield "all of the above", 10, words
    for limit, queries in VISITS.items():
        for query in queries:
            yield f"/archive/?{urlencode(query)}", limit, page_times(client, query)
    yield "one script by job id", 5, script_times()


def report(what, limit_ms, times):
    p95 = statistics.quantiles(times, n=20)[-1]
    ok = p95 <= limit_ms
    print(
        f"{'ok  ' if ok else 'SLOW'} {what:60} p50 {statistics.median(times):7.2f}  p95 "
        f"{p95:7.2f}  limit {limit_ms} ms"
    )
    return ok


def times_in_database(query, user, page):
    """Return the times in the database of many searches of a page, in ms."""
    from django.db import connection
    from django.http import QueryDict

    from apps.archive.domain.store.contents import archived_jobs_for_list
    from apps.archive.filters import ArchivedJobs

    data = QueryDict(mutable=True)
    data.update(query)
    for _ in range(page - 1):
        found = ArchivedJobs(data, archived_jobs_for_list(user)).page(data)
        data = QueryDict(found.next_query[1:])
    times = []
    for _ in range(REPEATS):
        seconds = []
        with connection.execute_wrapper(stopwatch(seconds)):
            ArchivedJobs(data, archived_jobs_for_list(user)).page(data)
        times.append(1000 * sum(seconds))
    return times


def stopwatch(seconds):
    def wrapper(execute, sql, params, many, context):
        began = time.perf_counter()
        try:
            return execute(sql, params, many, context)
        finally:
            seconds.append(time.perf_counter() - began)

    return wrapper


def page_times(client, query):
    times = []
    for _ in range(1 + REPEATS):
        began = time.perf_counter()
        response = client.get("/archive/", query, secure=True)
        times.append(1000 * (time.perf_counter() - began))
        assert response.status_code == 200, response.status_code
    return times[1:]


def script_times():
    from apps.archive.domain.store.contents import newest_job, read_blob
    from apps.archive.models import ArchivedJob

    choose = random.Random(1)
    count = ArchivedJob.objects.count()
    times = []
    for _ in range(300):
        began = time.perf_counter()
        job = newest_job(cluster="benchmark", job_id=str(choose.randrange(1, count)))
        read_blob(job.script)
        times.append(1000 * (time.perf_counter() - began))
    return times


if __name__ == "__main__":
    main()
