"""How fast years of jobs are asked: statistics of all, and the archived jobs themselves.

`python -m benchmarks.job_history --jobs 200000000 --months 48`.

One month is made up, counted and archived as the portal does it. The other months are copies of its
files, blocks and totals with other IDs and times: to make up each would take hours more. Prints one
JSON object last. With `--directory` the database and the files are kept, and used again.
"""

import argparse
import json
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from django.core.management import call_command

from benchmarks.database import database, set_up_django
from benchmarks.job_pages import QUESTIONS
from benchmarks.page_visits import visit_pages

#: Days of a month that have jobs; all months have them.
DAYS = 28
#: The fields of a job that move with its month.
_TIMES = ("submitted_at", "started_at", "ended_at", "collected_at")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=4_800_000)
    parser.add_argument("--months", type=int, default=48)
    parser.add_argument("--visits", type=int, default=2)
    parser.add_argument(
        "--directory", type=Path, help="Keeps the database; one that is there is used."
    )
    options = parser.parse_args()
    with database(options.directory) as (base, url):
        set_up_django(
            base,
            url,
            STATIC_DIR=str(base / "static"),
            JOB_ARCHIVE=str(base / "job-months"),
            PORTAL_URL="http://localhost",
            LOG_LEVEL="ERROR",
        )
        call_command("collectstatic", verbosity=0, interactive=False)
        print(json.dumps(measured(options.jobs, options.months, options.visits, base)))


def measured(jobs: int, months: int, visits: int, base: Path) -> dict[str, object]:
    from apps.jobs.models import ArchivedMonth

    filled = {} if ArchivedMonth.objects.exists() else fill(jobs // months, months)
    archived = list(ArchivedMonth.objects.order_by("month"))
    return {
        "jobs": sum(month.jobs for month in archived),
        "months": len(archived),
        **filled,
        "parquet_gb": _gigabytes(base / "job-months"),
        "database_gb": _database_gigabytes(),
        "statistics": visit_pages(list(questions(archived)), visits),
        "jobs_by_id": visit_pages(list(pages_of_jobs(archived)), visits),
        "lists": visit_pages(list(lists_of_jobs(archived)), visits),
        "load": os.getloadavg()[0],
    }


def fill(jobs: int, months: int) -> dict[str, object]:
    """Make up one month and copy it; return the seconds that this took."""
    from apps.jobs.domain.statistics.monthly import compact_months

    started = time.monotonic()
    newest = _month_before(datetime.now(UTC).date())
    first = newest
    for _ in range(months - 1):
        first = _month_before(first)
    _make_up(first, jobs)
    made = time.monotonic()
    month = first
    for number in range(1, months):
        month = _next_month(month)
        _copy_month(first, month, number)
    copied = time.monotonic()
    while compact_months(at=datetime.now(UTC)):
        pass
    _vacuum()
    return {
        "month_s": round(made - started),
        "copies_s": round(copied - made),
        "sums_of_months_s": round(time.monotonic() - copied),
    }


def _make_up(month: date, count: int) -> None:
    from django.db import connection

    from apps.jobs.domain.months.archive import archive_month
    from apps.jobs.domain.records.calendar_months import start_of
    from apps.jobs.models import ArchivedMonth, Job
    from benchmarks.job_rows import Jobs

    jobs = Jobs(start_of(month) + timedelta(days=DAYS), days=DAYS - 0.1)
    jobs.add(count)
    jobs.count()
    at = datetime.now(UTC)
    archive_month(month=month, at=at)
    keys = Job.objects.order_by("pk").values_list("pk", flat=True)
    ArchivedMonth.objects.create(
        month=month,
        jobs=count,
        first_id=keys.first(),
        last_id=keys.last(),
        archived_at=at,
        dropped_at=at,
    )
    with connection.cursor() as cursor:
        # To delete them in batches, as the portal does, takes much longer.
        cursor.execute("TRUNCATE jobs_job CASCADE")


def _copy_month(first: date, month: date, number: int) -> None:
    """Copy the files, the blocks and the totals of the first month to another."""
    from django.db import connection

    from apps.jobs.domain.months.stores.base import Manifest, file_name, sha256_of
    from apps.jobs.domain.months.stores.chosen import job_archive
    from apps.jobs.models import ArchivedMonth, HourlyTotals, Job, StatisticsBlock

    made_up = ArchivedMonth.objects.get(month=first)
    store = job_archive()
    manifest = store.read_manifest(first)
    directory = store.new_directory(month)
    days = (month - first).days
    first_id = made_up.first_id + number * made_up.jobs
    contents = {}
    with store.files(first, manifest.tables) as paths:
        for table, path in paths.items():
            target = directory / file_name(table)
            if table == Job._meta.db_table:
                _copy_jobs(path, target, days=days, ids=first_id - made_up.first_id)
            else:
                shutil.copyfile(path, target)
            contents[table] = replace(manifest.tables[table], sha256=sha256_of(target))
    store.put_in_place(month, directory, Manifest(f"{month:%Y-%m}", manifest.archived_at, contents))
    ArchivedMonth.objects.create(
        month=month,
        jobs=made_up.jobs,
        first_id=first_id,
        last_id=first_id + made_up.jobs - 1,
        archived_at=made_up.archived_at,
        dropped_at=made_up.dropped_at,
    )
    with connection.cursor() as cursor:
        for model, times in (
            (StatisticsBlock, ("bucket",)),
            (HourlyTotals, ("hour", "last_ended_at")),
        ):
            cursor.execute(_copied_rows(model, times), {"days": days, "first": first})


def _copied_rows(model: Any, times: tuple[str, ...]) -> str:
    """Return the statement that copies the rows of the first month; the first of `times` decides."""
    names = []
    values = []
    for field in model._meta.concrete_fields:
        if field.primary_key:
            continue
        name = f'"{field.column}"'
        names.append(name)
        values.append(f"{name} + %(days)s * interval '1 day'" if field.column in times else name)
    return (
        f'INSERT INTO "{model._meta.db_table}" ({", ".join(names)}) '
        f'SELECT {", ".join(values)} FROM "{model._meta.db_table}" '
        f"WHERE \"{times[0]}\" < %(first)s::date + interval '1 month'"
    )


def _copy_jobs(source: Path, target: Path, *, days: int, ids: int) -> None:
    import duckdb

    moved = ", ".join(f"{name} + INTERVAL {days} DAY AS {name}" for name in _TIMES)
    with duckdb.connect(":memory:", config={"threads": 2, "memory_limit": "2GB"}) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(
            f"COPY (SELECT * REPLACE (id + {ids} AS id, {moved}) FROM '{source}') TO '{target}' "
            "(FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE 20000)"
        )


def questions(archived: list[Any]) -> Iterator[str]:
    """Yield the questions of `benchmarks.job_pages`, for all months."""
    since = archived[0].month
    until = _next_month(archived[-1].month)
    for address in QUESTIONS:
        if address.endswith("period=90d"):
            question = address.removesuffix("period=90d")
            yield f"{question}since={since}T00:00Z&until={until}T00:00Z"


def pages_of_jobs(archived: list[Any]) -> Iterator[str]:
    """Yield the pages of jobs of the oldest, the middle and the newest month."""
    for month in (archived[0], archived[len(archived) // 2], archived[-1]):
        yield f"/api/v1/job-history/{month.first_id + month.jobs // 2}/"


def lists_of_jobs(archived: list[Any]) -> Iterator[str]:
    """Yield lists of archived jobs, of all months and of the oldest."""
    oldest = archived[0].month
    period = f"ended_from={oldest}T00:00Z&ended_to={_next_month(oldest)}T00:00Z"
    yield "/jobs/archived/"
    yield "/jobs/archived/?state=any_failure"
    yield "/jobs/archived/?host=wn-0306"
    yield f"/jobs/archived/?host=wn-0306&state=any_failure&{period}"


def _month_before(day: date) -> date:
    return (day.replace(day=1) - timedelta(days=1)).replace(day=1)


def _next_month(month: date) -> date:
    return (month + timedelta(days=32)).replace(day=1)


def _gigabytes(directory: Path) -> float:
    size = sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
    return round(size / 1e9, 2)


def _database_gigabytes() -> float:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_database_size(current_database())")
        return round(cursor.fetchone()[0] / 1e9, 2)


def _vacuum() -> None:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")


if __name__ == "__main__":
    main()
