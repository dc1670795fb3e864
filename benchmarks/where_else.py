"""How fast “Where else?” is: `python -m benchmarks.where_else [--logs N]`.

Fills the database with N jobs of 20 days, a tenth of them failed, each with 50 templates: most are
those of its stage, some are rare, and failed jobs have an error. Counts all hours as the portal
does, visits the pages about a line of every job of a stage, about errors of many and of few jobs,
and the new lines, as a shifter, and then stores the templates of more logs. Prints one JSON object
last: p95 of all visits and for each address the median and the slowest in milliseconds, bytes of a
log in all tables and indexes, seconds to count an hour, logs stored in a second, and the CPU time that
storing a log takes of the portal and of PostgreSQL. With `--directory` the database is kept, and used
again.
"""

import argparse
import json
import random
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.database import database, set_up_django
from benchmarks.page_visits import visit_pages

DAYS = 20
STAGES = 10
#: Templates that all jobs of a stage choose from, and how many each has.
STAGE_TEMPLATES, FROM_STAGE = 60, 45
RARE_TEMPLATES = 20_000
ERRORS = 300
PATTERNS = 200
STORED, BATCH = 5_000, 100
LINES = """
INSERT INTO search_linetemplate (id, experiment_id, hash, text, names_error, first_seen_at)
SELECT n, %(experiment)s, hashint8extended(n, 7), format('template %%s of a line', n),
       n > %(errors_from)s,
       %(at)s - CASE WHEN n %% 40 = 0 THEN (n %% 2880) * interval '1 minute' ELSE interval '30 days' END
FROM generate_series(1, %(templates)s) n;
SELECT setval(pg_get_serial_sequence('search_linetemplate', 'id'), %(templates)s);
"""
JOBS = """
INSERT INTO jobs_job (cluster_id, job_id, raw_id, spool_id, attempt, state, exit_code, signal,
    submitted_at, started_at, ended_at, host, site_id, cpus, cpu_seconds, wall_seconds, partition,
    account, "user", name, comment, reason, cancelled_by, work_dir, submit_line, stdout_path,
    stderr_path, cpu_model, host_address, suspended_seconds, log_path, error_log_path,
    log_path_source, experiment_id, claimed_key, proof, request_key, stage, release, collected_at,
    record_digest)
SELECT %(cluster)s, n::text, n, n::text, 1, CASE WHEN n %% 10 = 3 THEN 'failed' ELSE 'completed' END,
    0, 0, ended - interval '2 hours', ended - interval '1 hour', ended,
    format('wn-%%s', 1 + (n * 7) %% 2000), 1 + (n * 7) %% 2000 %% 8, 1, 3000, 3600, '', '', 'novapro',
    '', '', '', '', '', '', '', '', format('EPYC %%s', n %% 5), '', 0, '', '', '', %(experiment)s, '',
    'none', '', format('stage%%s', n %% %(stages)s), format('v%%s', n / 1000000), ended, ''
FROM (SELECT n, %(at)s - %(days)s * interval '1 day' * (1 - n::float / %(logs)s) AS ended
      FROM generate_series(1, %(logs)s) n) numbered
"""
TEMPLATES = """
CREATE TEMPORARY TABLE patterns AS
SELECT stage, pattern, (SELECT array_agg(template ORDER BY template) FROM (
        SELECT 1 + stage * %(stage_templates)s + k AS template
        FROM generate_series(0, %(stage_templates)s - 1) k
        ORDER BY hashint8extended(pattern * 1000 + k, stage) LIMIT %(from_stage)s) chosen) templates
FROM generate_series(0, %(stages)s - 1) stage, generate_series(0, %(patterns)s - 1) pattern;
INSERT INTO search_jobtemplates (job_id, ended_at, failed, templates, read_at)
SELECT job.id, job.ended_at, job.state = 'failed',
    patterns.templates || ARRAY[
        %(rare_from)s + (power(random(), 4) * %(rare)s)::int,
        %(rare_from)s + (power(random(), 4) * %(rare)s)::int,
        %(rare_from)s + (power(random(), 4) * %(rare)s)::int,
        %(rare_from)s + (power(random(), 2) * %(rare)s)::int
    ] || CASE WHEN job.state = 'failed'
         THEN ARRAY[1 + %(errors_from)s + (power(random(), 5) * (%(errors)s - 1))::int]
         ELSE ARRAY[%(rare_from)s + 7] END,
    job.ended_at
FROM jobs_job job
JOIN patterns ON patterns.stage = job.raw_id %% %(stages)s
    AND patterns.pattern = (job.raw_id / %(stages)s) %% %(patterns)s;
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logs", type=int, default=10_000_000)
    parser.add_argument("--visits", type=int, default=10, help="of each page")
    parser.add_argument("--directory", type=Path)
    options = parser.parse_args()
    with database(options.directory) as (base, url):
        set_up_django(base, url, STATIC_DIR=str(base / "static"), LOG_LEVEL="ERROR")
        from django.core.management import call_command

        from apps.search.models import JobTemplates

        call_command("collectstatic", verbosity=0, interactive=False)
        figures: dict[str, object] = {}
        if not JobTemplates.objects.exists():
            figures = fill(options.logs)
        figures |= {
            "logs": JobTemplates.objects.count(),
            **sizes(),
            **visit_pages(addresses(), options.visits),
            **measure_storing(),
        }
        print(json.dumps(figures))


def job_values(logs: int) -> dict[str, Any]:
    """Create sites, an experiment and a cluster; return the values of `JOBS` for so many jobs."""
    from apps.accounts.models import Experiment
    from apps.clusters.models import Cluster, Site

    for number in range(8):
        Site.objects.get_or_create(pk=number + 1, defaults={"name": f"site{number}"})
    return {
        "at": datetime.now(UTC).replace(minute=0, second=0, microsecond=0),
        "logs": logs,
        "days": DAYS,
        "stages": STAGES,
        "experiment": Experiment.objects.create(key="NOVA", name="NOvA").pk,
        "cluster": Cluster.objects.create(name="farm", scheduler="slurm").pk,
    }


def fill(logs: int) -> dict[str, object]:
    """Fill the tables, and count all hours; return the median time to count one."""
    from django.db import connection

    from apps.jobs.domain.totals.rollups import mark_dirty
    from apps.jobs.enums import Counted
    from apps.search.domain.line_totals import recount_hour

    rare_from = STAGES * STAGE_TEMPLATES
    values = job_values(logs) | {
        "patterns": PATTERNS,
        "stage_templates": STAGE_TEMPLATES,
        "from_stage": FROM_STAGE,
        "rare_from": rare_from + 1,
        "rare": RARE_TEMPLATES - 1,
        "errors_from": rare_from + RARE_TEMPLATES,
        "errors": ERRORS,
        "templates": rare_from + RARE_TEMPLATES + ERRORS,
    }
    with connection.cursor() as cursor:
        cursor.execute("SET max_parallel_maintenance_workers = 2; SET maintenance_work_mem = '1GB'")
        cursor.execute("DROP INDEX job_templates")
        for statement in (LINES, JOBS, TEMPLATES):
            started = time.perf_counter()
            cursor.execute(statement, values)
            print(statement.split()[2], round(time.perf_counter() - started), "s", flush=True)
        cursor.execute("CREATE INDEX job_templates ON search_jobtemplates USING gin (templates)")
        cursor.execute("VACUUM ANALYZE")
    hours = [values["at"] - timedelta(hours=number) for number in range(DAYS * 24 + 1)]
    times = []
    for hour in hours:
        mark_dirty([hour], Counted.LINES)
        started = time.perf_counter()
        recount_hour(hour=hour)
        times.append(time.perf_counter() - started)
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")
    return {"hour_counted_s": round(median(times), 2)}


def sizes() -> dict[str, float]:
    """Return the bytes of a log: the templates of jobs, and the totals by hour."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_table_size('search_jobtemplates'), pg_indexes_size('search_jobtemplates'),"
            " pg_total_relation_size('search_templatetotals'), count(*) FROM search_jobtemplates"
        )
        table, indexes, totals, logs = cursor.fetchone()
    return {
        "table_bytes_a_log": round(table / logs),
        "index_bytes_a_log": round(indexes / logs),
        "totals_bytes_a_log": round(totals / logs),
    }


def addresses() -> list[str]:
    """Return the pages about a line of each kind, and the new lines."""
    from apps.search.models import LineTemplate

    rare_from = STAGES * STAGE_TEMPLATES
    errors_from = rare_from + RARE_TEMPLATES
    lines = {
        "usual": 5,
        "rare": rare_from + RARE_TEMPLATES - 50,
        "frequent error": errors_from + 1,
        "medium error": errors_from + 30,
        "rare error": errors_from + ERRORS - 5,
    }
    pages = []
    for key in lines.values():
        number = LineTemplate.objects.get(pk=key).number
        pages.append(f"/failures/where-else/?template={number}")
        pages.append(f"/failures/where-else/?template={number}&outcome=failed&days=7")
    pages.append("/failures/new-lines/")
    pages.append("/failures/new-lines/?days=7&good=yes")
    return pages


def measure_storing() -> dict[str, float]:
    """Return how many logs of 50 lines are stored in a second, in batches as the harvest does."""
    from apps.jobs.models import Job
    from apps.search.domain.templates import LogTemplates, TemplateLine, store_templates
    from apps.search.models import LineTemplate

    lines = {}
    for row in LineTemplate.objects.order_by("pk")[: STAGES * STAGE_TEMPLATES + 5_000]:
        lines[row.unsigned_hash] = TemplateLine(row.text, row.names_error)
    numbers = list(lines)
    chooser = random.Random(1)
    logs = []
    for job in Job.objects.order_by("-ended_at")[:STORED]:
        chosen = chooser.sample(numbers, 50)
        logs.append(LogTemplates(job, {number: lines[number] for number in chosen}))
    started = time.perf_counter()
    used = processor_seconds()
    for start in range(0, STORED, BATCH):
        store_templates(logs[start : start + BATCH], at=datetime.now(UTC))
    python, postgres = [now - before for now, before in zip(processor_seconds(), used, strict=True)]
    return {
        "stored_a_second": round(STORED / (time.perf_counter() - started)),
        "stored_cpu_ms": round(1000 * python / STORED, 2),
        "stored_postgres_cpu_ms": round(1000 * postgres / STORED, 2),
    }


def processor_seconds() -> tuple[float, float]:
    """Return the seconds of CPU time of this process, and of its process of PostgreSQL."""
    from django.db import connection

    schedule = Path(f"/proc/{connection.connection.info.backend_pid}/schedstat")
    return time.process_time(), int(schedule.read_text().split()[0]) / 1e9


if __name__ == "__main__":
    main()
