"""How fast the pages of failures are: `python -m benchmarks.failure_groups --failures 1000000`.

Failed jobs of 90 days, each with a verdict, in 3,000 groups of very different size: the groups in
each period and view, pages of large and small groups, failed jobs by facets, common causes, the
search, and the API. Prints one JSON object last: `p95_ms` of all visits, `first_p95_ms` of the
first visit of each address, and the slowest.

With `--directory` the database is kept, and used again. Failed jobs that are there without
verdicts, such as those of `benchmarks.job_pages`, get theirs.
"""

import argparse
import json
import os
import time
from datetime import UTC, datetime
from pathlib import Path

from django.core.management import call_command

from benchmarks.database import database, set_up_django
from benchmarks.job_pages import p95, seconds_of

GROUPS = 3000
#: Verdict, advice, category and known error of groups, in turn.
KINDS = (
    ("code", "debug", "experiment-code", "ERROR-LINE"),
    ("service", "retry", "service", "CONN-TIMEOUT"),
    ("resource", "hold", "resource", "SLURM-OOM"),
    ("unknown", "escalate", "unknown", ""),
)
PERIODS = ("24", "168", "720")
VIEWS = ("", "new", "unexplained", "retry", "mine", "muted")
PAGES_OF_GROUPS = 20
GROUP_QUERIES = (
    "experiment=EXP03",
    "cluster=cluster1",
    "stage=merge",
    "verdict=code",
    "q=Error 29",
)
#: Facets of failed jobs: many, few and no jobs have them.
FAILED_JOBS = (
    "",
    "verdict=service",
    "cause=SLURM-OOM",
    "cause=-",
    "cause=OTHER",
    "experiment=EXP03",
    "cluster=cluster1",
    "stage=merge",
    "stage=other",
    "request=EXP03-0003",
    "experiment=EXP03&stage=merge&verdict=code",
    "status=muted",
    "status=resolved",
    "kind=host",
    "owner=nobody",
    "since=open",
    "since=succeeded",
    "q=Error 29",
    "q=Error 2999 of",
    "q=nothing like it",
    "sort=-wall",
    "verdict=code&sort=-core",
)
SLICES = ("host/wn-0306", "host/wn-0007", "site/Site 3", "user/user007")
#: The first groups get most jobs: with the cube, half of all are in an eighth of the groups.
EVALUATED = """
INSERT INTO diagnosis_verdict
  (job_id, experiment_id, ended_at, verdict, advice, later_state, retried_as, retry_state, machine_verdict, category,
   confidence, cause, service, message, frame, symptom, group_id, summary, reasons, catalogue_version, decided_at,
   overridden_by, override_reason)
SELECT job.id, job.experiment_id, job.ended_at, g.verdict, k.advice, '', '', '', g.verdict, k.category,
   'high', g.cause, '', g.line, '', g.fingerprint, g.id, 'made up', '[]', 'made up', job.ended_at, '', ''
FROM (SELECT id, experiment_id, ended_at, floor(%s * power(random(), 3))::int AS nth
  FROM jobs_job WHERE state = 'failed') AS job
JOIN (SELECT *, row_number() OVER (ORDER BY id) - 1 AS nth FROM diagnosis_failuregroup) AS g USING (nth)
JOIN (VALUES ('code', 'debug', 'experiment-code'), ('service', 'retry', 'service'), ('resource', 'hold', 'resource'),
  ('unknown', 'escalate', 'unknown')) AS k (verdict, advice, category) ON k.verdict = g.verdict
"""
SEEN = """
UPDATE diagnosis_failuregroup AS g SET first_seen_at = seen.first, last_seen_at = seen.last
FROM (SELECT group_id, min(ended_at) AS first, max(ended_at) AS last FROM diagnosis_verdict GROUP BY group_id) AS seen
WHERE seen.group_id = g.id
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--failures", type=int, default=1_000_000)
    parser.add_argument("--visits", type=int, default=3)
    parser.add_argument("--directory", type=Path)
    options = parser.parse_args()
    with database(options.directory) as (base, url):
        set_up_django(
            base,
            url,
            STATIC_DIR=str(base / "static"),
            PORTAL_URL="http://localhost",
            LOG_LEVEL="ERROR",
        )
        from apps.diagnosis.models import Verdict
        from apps.jobs.models import Job

        call_command("collectstatic", verbosity=0, interactive=False)
        started = time.monotonic()
        if not Job.objects.exists():
            add_failed_jobs(options.failures)
        if not Verdict.objects.exists():
            add_verdicts()
        filled = {"fill_s": round(time.monotonic() - started)}
        print(json.dumps(filled | measured(options.visits)))


def add_failed_jobs(count: int) -> None:
    from benchmarks.job_rows import Jobs

    class Failures(Jobs):
        def row(self, number, count):
            row = list(super().row(number, count))
            row[5:8] = "failed", 1, 0  # state, exit code, signal
            return row

    Failures(datetime.now(UTC)).add(count)


def add_verdicts() -> None:
    """Write groups, a verdict for each failed job, and the totals of all hours."""
    from django.db import connection

    from apps.diagnosis.domain.causes.totals import recount_dirty_hours
    from apps.diagnosis.models import FailureGroup, Verdict
    from apps.jobs.domain.totals import rollups
    from apps.jobs.enums import Counted
    from benchmarks.job_rows import without_indexes

    at = datetime.now(UTC)
    FailureGroup.objects.bulk_create(
        FailureGroup(
            fingerprint=f"{number:032x}",
            verdict=KINDS[number % len(KINDS)][0],
            cause=KINDS[number % len(KINDS)][3],
            title=f"Error {number} of the reconstruction",
            line=f"error {number}: run # of file # cannot be read",
            status="muted" if number % 50 == 0 else "new",
            status_at=at,
            first_seen_at=at,
            last_seen_at=at,
        )
        for number in range(GROUPS)
    )
    with connection.cursor() as cursor:
        with without_indexes(cursor, "diagnosis_verdict"):
            cursor.execute(EVALUATED, [GROUPS])
        cursor.execute(SEEN)
    rollups.mark_dirty(Verdict.objects.datetimes("ended_at", "hour", tzinfo=UTC), Counted.CAUSES)
    while recount_dirty_hours().hours:
        pass
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")


def seen_groups() -> list[int]:
    from apps.diagnosis.models import DailyCauseTotals, FailureGroup

    seen = FailureGroup.objects.filter(pk__in=DailyCauseTotals.objects.values("group"))
    return list(seen.order_by("pk").values_list("pk", flat=True))


def pages_of_failures(ids: list[int]) -> list[str]:
    """Return the addresses to visit, with pages of some of these groups."""
    return [
        *(f"/failures/?hours={hours}&view={view}" for hours in PERIODS for view in VIEWS),
        *(f"/failures/?hours={hours}&{query}" for hours in PERIODS for query in GROUP_QUERIES),
        *(f"/failures/{pk}/" for pk in ids[:: len(ids) // PAGES_OF_GROUPS]),
        *(f"/failures/jobs/?{query}" for query in FAILED_JOBS),
        *(f"/failures/jobs/?group={pk}" for pk in (ids[0], ids[-1])),
        *(f"/failures/causes/?days={days}" for days in (1, 7, 30)),
        *(f"/failures/of/{of_slice}/?period=90d" for of_slice in SLICES),
        "/api/v1/failure-groups/",
        "/api/v1/failure-groups/?verdict=service",
        "/api/v1/verdicts/",
        "/api/v1/verdicts/?experiment=EXP03&verdict=code",
    ]


def measured(visits: int) -> dict[str, object]:
    from django.test import Client

    from apps.accounts.enums import Role
    from apps.accounts.models import Membership, User
    from apps.diagnosis.models import CauseTotals, Verdict

    user, _ = User.objects.get_or_create(username="visitor")
    Membership.objects.get_or_create(user=user, role=Role.SHIFTER)
    client = Client()
    client.force_login(user, "django.contrib.auth.backends.ModelBackend")
    client.get("/jobs/")  # imports what pages need
    ids = seen_groups()
    addresses = pages_of_failures(ids)
    first = [seconds_of(client, address) for address in addresses]
    taken = {address: [seconds_of(client, address) for _ in range(visits)] for address in addresses}
    slowest = sorted(addresses, key=lambda address: min(taken[address]), reverse=True)[:8]
    return {
        "failures": Verdict.objects.count(),
        "groups": len(ids),
        "totals": CauseTotals.objects.count(),
        "p95_ms": p95([seconds for each in taken.values() for seconds in each]),
        "first_p95_ms": p95(first),
        "slowest": {address: round(1000 * min(taken[address])) for address in slowest},
        "load": os.getloadavg()[0],
    }


if __name__ == "__main__":
    main()
