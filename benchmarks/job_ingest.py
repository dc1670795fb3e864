"""How fast records become facts and roll-ups: `python -m benchmarks.job_ingest --jobs 200000`.

Prints one JSON object last: `records_per_s` of records stored as the collector stores them, with
their events, and then counted into totals and statistics; `copy_ratio`, that divided by the speed
of a bare COPY of the same rows into a table with the same indexes; `store_per_s` and `count_per_s`
of the two parts; `cost_ratio`, the seconds per record of the last tenth divided by those of the
first; `repeat_per_s`, records that are there already; `memory_mb`, the peak.
"""

import argparse
import gc
import json
import os
import resource
import time
from datetime import UTC, datetime, timedelta

from benchmarks.database import database, set_up_django


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=200_000)
    options = parser.parse_args()
    with database() as (base, url):
        set_up_django(base, url, LOG_LEVEL="ERROR")
        from django.conf import settings

        settings.CELERY_BROKER_URL = (
            "memory://"  # what records lead to is queued, and not waited for
        )
        print(json.dumps(measured(options.jobs)))


def measured(count):
    from django.db import connection

    from apps.jobs.domain.collection.accounting import split_into_chunks, store_records
    from apps.jobs.domain.totals.rollups import recompute_dirty_hours
    from apps.jobs.models import Job
    from benchmarks.job_rows import COLUMNS, Jobs

    # As many jobs an hour as ten million in 90 days have.
    jobs = Jobs(datetime.now(UTC) - timedelta(hours=1), days=max(0.05, 90 * count / 10_000_000))
    cluster = jobs.clusters[0]
    rows = [jobs.row(number, count) for number in range(count)]
    batches = list(split_into_chunks([_record(row) for row in rows]))
    gc.freeze()  # a collector does not hold the records of all batches
    stored = []
    for batch in batches:
        begun = time.perf_counter()
        store_records(cluster=cluster, records=batch, at=jobs.at)
        stored.append(time.perf_counter() - begun)
    begun = time.perf_counter()
    while recompute_dirty_hours(at=jobs.at):
        pass
    counting = time.perf_counter() - begun
    begun = time.perf_counter()
    for batch in batches[:20]:
        store_records(cluster=cluster, records=batch, at=jobs.at)
    again = time.perf_counter() - begun
    tenth = max(1, len(batches) // 10)
    copying = _copied(connection, Job, COLUMNS)
    return {
        "jobs": count,
        "records_per_s": round(count / (sum(stored) + counting)),
        "copy_ratio": round(copying / (sum(stored) + counting), 3),
        "cost_ratio": round(sum(stored[-tenth:]) / sum(stored[:tenth]), 2),
        "store_per_s": round(count / sum(stored)),
        "count_per_s": round(count / counting),
        "repeat_per_s": round(sum(map(len, batches[:20])) / again),
        "copy_per_s": round(count / copying),
        "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "load": os.getloadavg()[0],
    }


def _record(row):
    from apps.clusters.schedulers.base import JobRecord, JobState
    from benchmarks.job_rows import COLUMNS

    values = {
        name: value
        for name, value in zip(COLUMNS, row, strict=True)
        if name in JobRecord.__dataclass_fields__
    }
    return JobRecord(**{**values, "state": JobState(values["state"])})


def _copied(connection, model, columns):
    """Return the seconds of a COPY of the stored rows into an empty table with the same indexes."""
    names = ", ".join(f'"{name}"' for name in columns)
    table = model._meta.db_table
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE bare (LIKE {table} INCLUDING ALL)")
        with cursor.copy(
            f"COPY (SELECT id, {names} FROM {table}) TO STDOUT (FORMAT BINARY)"
        ) as copy:
            content = b"".join(copy)
        begun = time.perf_counter()
        with cursor.copy(f"COPY bare (id, {names}) FROM STDIN (FORMAT BINARY)") as copy:
            copy.write(content)
        return time.perf_counter() - begun


if __name__ == "__main__":
    main()
