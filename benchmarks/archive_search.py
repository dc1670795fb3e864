"""How fast the archive is searched: `python -m benchmarks.archive_search [--scripts N]`.

Fills a PostgreSQL of its own with made-up jobs of 90 days (every third script a resubmission, words as frequent as in
nature: a few in every script, most in one), indexes their words as the worker does, and asks as the pages do.
Prints the time in the database and of whole pages, each against its limit.
"""

import argparse
import hashlib
import json
import os
import random
import shutil
import statistics
import struct
import subprocess
import tempfile
import time
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

import psycopg

from benchmarks.archive_capture import User
from dev.postgres import Postgres
from dev.processes import guard, spawn

DAYS = 90
NEWEST = datetime(2026, 11, 20, 12, tzinfo=UTC)
USERS = 200
REPEATS = 60
#: Words by the share of scripts that have them.
SHARES = {"word-in-1": 1.0, "word-in-17": 0.06, "word-in-40": 0.025, "word-in-100": 0.01, "word-in-400": 0.0025,
          "word-in-2000": 0.0005, "word-in-20000": 0.00005}  # fmt: skip
TABLES = {"words": ("archive_scriptwords",), "rest": ("archive_blob", "archive_archivedjob", "archive_dictionary")}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scripts", type=int, default=100_000)
    parser.add_argument("--directory", type=Path, help="where to keep the database for another run (else temporary)")
    arguments = parser.parse_args()
    base = arguments.directory or Path(tempfile.mkdtemp(prefix="opsportal-benchmark-"))
    base.mkdir(exist_ok=True)
    sockets = Path(tempfile.mkdtemp(prefix="opsportal-s-"))
    watchdog, url = start_postgres(base, sockets, remove=None if arguments.directory else base)
    try:
        set_up_django(base, url)
        figures = fill(url, arguments.scripts) if is_empty() else {}
        figures |= {"index": index(url)} | {"bytes_a_job": sizes(url, arguments.scripts)}
        print(json.dumps(figures, indent=2))
        ok = measure()
    finally:
        watchdog.stdin.close()
        watchdog.wait(timeout=60)
        shutil.rmtree(sockets, ignore_errors=True)
        if not arguments.directory:
            shutil.rmtree(base, ignore_errors=True)
    raise SystemExit(0 if ok else 1)


def start_postgres(base, sockets, *, remove):
    run = base / "run"
    run.mkdir(exist_ok=True)
    watchdog = guard(run, remove=remove)
    postgres = Postgres(base / "postgres", sockets)
    postgres.prepare()
    with (base / "postgres.log").open("ab") as log:
        server = spawn("postgres", postgres.command(), run, stdout=log, stderr=subprocess.STDOUT)
    postgres.wait_ready(server.poll)
    postgres.create_database("opsportal")
    return watchdog, postgres.url("opsportal")


def set_up_django(base, url):
    os.environ |= {
        "DATABASE_URL": url,
        "REDIS_URL": "redis://localhost:1/0",
        "SECRET_KEY": "benchmark" * 10,
        "VAR_DIR": str(base / "var"),
        "DJANGO_SETTINGS_MODULE": "opsportal.settings",
        "ALLOWED_HOSTS": "testserver",
    }
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0, skip_checks=True)


def is_empty():
    from apps.archive.models import ArchivedJob

    return not ArchivedJob.objects.exists()


@cache
def user_of(number):
    return User(number)


def make_script(choose, user, number):
    """Return a script of 3 KB: what all of the user's have, its own, some words. Or the user's last one again."""
    last = user.last
    script, _ = user.submit(choose)
    if last and script is last[0]:
        return user.latest
    lines = [f"echo {word}" for word, share in SHARES.items() if choose.random() < share]
    lines += [f"module load gromacs/{2018 + choose.randrange(8)}.{choose.randrange(9)}", f"./finish --run {number}"]
    user.latest = script.rstrip(b"\0") + "\n".join(lines).encode() + b"\n"
    return user.latest


def fill(url, scripts):
    """Copy the rows straight into the tables, compressed as the archive does it; return how long it took."""
    from apps.archive import compression
    from apps.archive.models import Dictionary
    from apps.clusters.services import ensure_cluster

    began = time.perf_counter()
    cluster = ensure_cluster(name="benchmark", scheduler="slurm", by="benchmark", at=NEWEST)
    choose = random.Random(7)
    samples = [make_script(choose, user_of(number % USERS), -number) for number in range(1500)]
    trained = compression.train(samples)
    dictionary = Dictionary.objects.create(kind="script", data=trained, trained_at=NEWEST)
    packer = compression.Compressor(compression.dictionary(trained))
    with psycopg.connect(url) as connection:
        environment = copy_environment(connection)
        copy_contents_and_jobs(connection, scripts, choose, packer, dictionary.pk, environment, cluster.pk)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SELECT setval('archive_blob_id_seq', (SELECT max(id) FROM archive_blob))")
        connection.execute("SELECT setval('archive_archivedjob_id_seq', (SELECT max(id) FROM archive_archivedjob))")
        connection.execute("VACUUM ANALYZE")
    return {"scripts": scripts, "fill_seconds": round(time.perf_counter() - began)}


def copy_environment(connection):
    from apps.archive import compression

    content = struct.pack("=I", 1) + b"USER=benchmark\0"
    values = (
        1,
        hashlib.sha256(content).digest(),
        "environment",
        len(content),
        compression.Compressor(None).compress(content),
    )
    connection.execute(
        "INSERT INTO archive_blob (id, sha256, kind, size_bytes, data) VALUES (%s, %s, %s, %s, %s)", values
    )
    return len(content)


def copy_contents_and_jobs(connection, scripts, choose, packer, dictionary, environment_bytes, cluster):
    jobs, keys = [], {}
    with connection.cursor().copy(
        "COPY archive_blob (id, sha256, kind, size_bytes, data, dictionary_id) FROM STDIN"
    ) as copy:
        for number in range(1, scripts + 1):
            user = choose.randrange(USERS)
            script = make_script(choose, user_of(user), number)
            pk, size = keys.get(user, (0, None))[0], len(script)
            if keys.get(user, (0, None))[1] is not script:
                pk = number + 1
                keys[user] = (pk, script)
                copy.write_row(
                    (pk, hashlib.sha256(script).digest(), "script", size, packer.compress(script), dictionary)
                )
            submitted_at = NEWEST - timedelta(days=DAYS) * (1 - number / scripts)
            jobs.append((number, str(number), submitted_at, submitted_at, pk, size, f"user{user}"))
    columns = (
        'id, job_id, submitted_at, captured_at, script_id, script_bytes, "user", cluster_id, environment_id,'
        " environment_bytes, request_key, stage, masked_names, account, name, arguments, state, caveat"
    )
    with connection.cursor().copy(f"COPY archive_archivedjob ({columns}) FROM STDIN") as copy:
        for job in jobs:
            copy.write_row((*job, cluster, 1, environment_bytes, "", "", "[]", "physics", "run", "", "completed", ""))


def index(url):
    from apps.archive import word_index

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
                sum(connection.execute("SELECT pg_total_relation_size(%s)", [table]).fetchone()[0] for table in tables)
                / scripts
            )
            for what, tables in TABLES.items()
        }


def measure():
    """Ask everything, print each against its limit; return whether all are within."""
    from django.test import Client, override_settings

    from apps.accounts.enums import Role
    from apps.accounts.models import User
    from apps.accounts.services import ensure_user, grant_role

    ensure_user(username="shifter", password_hash="!", by="benchmark", at=NEWEST)
    shifter = User.objects.get(username="shifter")
    grant_role(user=shifter, role=Role.SHIFTER, experiment=None, by="benchmark", at=NEWEST)
    plain = {"staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}}
    override_settings(STORAGES=plain).enable()
    client = Client()
    client.force_login(shifter)
    day = NEWEST.date().isoformat()
    lines = [report(f"words={word}", 10, times_in_database({"words": word}, shifter)) for word in (*SHARES, "nowhere")]
    lines.append(report("module=gromacs/2023.3", 10, times_in_database({"module": "gromacs/2023.3"}, shifter)))
    lines.append(
        report("words=word-in-17 word-in-40", 10, times_in_database({"words": "word-in-17 word-in-40"}, shifter))
    )
    lines.append(
        report("words=word-in-100&user=", 10, times_in_database({"words": "word-in-100", "user": "user7"}, shifter))
    )
    lines.append(
        report("words=word-in-17, 20th page", 10, times_in_database({"words": "word-in-17"}, shifter, page=20))
    )
    lines.append(report("words: all of the above", 10, [t for *_, times in lines for t in times]))
    pages = (
        {"words": "word-in-17"},
        {"words": "word-in-2000"},
        {"words": "nowhere"},
        {"job": "4711"},
        {"user": "user7"},
        {},
    )
    lines += [report(f"page {query}", 100, page_times(client, query)) for query in pages]
    text = (
        {"text": "ool7 --opt", "user": "user7"},
        {"text": "in-20000", "since": day, "until": day},
        {"text": "no such", "user": "user7"},
    )
    lines += [report(f"page {query}", 200, page_times(client, query)) for query in text]
    lines.append(report("one script by job id", 5, script_times()))
    return all(ok for _, ok, _ in lines)


def report(what, limit_ms, times):
    p95 = statistics.quantiles(times, n=20)[-1] if len(times) > 1 else times[0]
    ok = p95 <= limit_ms
    print(
        f"{'ok  ' if ok else 'SLOW'} {what:45} p50 {statistics.median(times):7.2f}  p95 {p95:7.2f}  limit {limit_ms} ms"
    )
    return what, ok, times


def times_in_database(query, user, page=1):
    """Return for each of many times how long the database took for the search of a page, in ms."""
    from django.db import connection, reset_queries
    from django.http import QueryDict

    from apps.archive.filters import ArchivedJobs
    from apps.archive.selectors import jobs_for_list

    data = QueryDict(mutable=True)
    data.update(query)
    for _ in range(page - 1):
        found = ArchivedJobs(data, jobs_for_list(user)).page(data)
        data = QueryDict(found.next_query[1:])
    times = []
    connection.force_debug_cursor = True
    for _ in range(REPEATS):
        reset_queries()
        seconds = []
        with connection.execute_wrapper(stopwatch(seconds)):
            ArchivedJobs(data, jobs_for_list(user)).page(data)
        times.append(1000 * sum(seconds))
    connection.force_debug_cursor = False
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
    for _ in range(15):
        began = time.perf_counter()
        response = client.get("/archive/", query, secure=True)
        times.append(1000 * (time.perf_counter() - began))
        assert response.status_code == 200, response.status_code
    return times


def script_times():
    from apps.archive.selectors import newest_job, read_blob

    choose = random.Random(1)
    from apps.archive.models import ArchivedJob

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
