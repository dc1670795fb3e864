"""How fast the pages of recovery rules are: `python -m benchmarks.recovery_pages [--decisions N]`.

Fills the database with decisions about failed jobs of 90 days, of the shipped rules in three
versions, and visits each page and list as a shifter. Prints one JSON object last: p95 of all visits
in milliseconds, and for each address the median and the slowest. With `--directory` the database is
kept, and used again.
"""

import argparse
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from benchmarks.database import database, set_up_django
from benchmarks.page_visits import shifter, visit_pages

DAYS = 90
VERDICTS = """
INSERT INTO diagnosis_verdict (job_id, experiment_id, ended_at, verdict, machine_verdict, advice,
  category, confidence, cause, service, message, frame, symptom, summary, reasons,
  catalogue_version, decided_at, later_state, retried_as, retry_state, overridden_by,
  override_reason)
SELECT id, experiment_id, ended_at, 'service', 'service', 'retry',
  (ARRAY['service', 'resource', 'site', 'data'])[1 + id %% 4], 'high', 'SAMWEB-5XX', 'samweb', '',
  '', '', 'Made up.', '[]', '1', ended_at,
  CASE WHEN ended_at < %(recent)s THEN 'completed' ELSE '' END, '', '', '', ''
FROM jobs_job
"""
#: By the last two digits of the job: 60 of 100 acted, 4 controls, 1 question, 1 of an owner.
DECISIONS = """
INSERT INTO recovery_decision (job_id, experiment_id, rule_id, version, arm, outcome, why, changes,
  attempt, first_asked, failed_at, decided_at, due_at, attempts, last_error, act_at, recovery, outcome_at,
  failed_core_seconds, retry_core_seconds)
SELECT id, experiment_id,
  CASE WHEN id %% 100 < 20 THEN NULL ELSE (%(rules)s::bigint[])[1 + id %% %(count)s] END,
  CASE WHEN id %% 100 < 20 THEN 0 WHEN ended_at < %(recent)s THEN 1 + id %% 2 ELSE 3 END,
  CASE WHEN id %% 100 < 20 THEN 'no-rule' WHEN id %% 100 < 80 THEN 'acted'
    WHEN id %% 100 < 84 THEN 'control' WHEN id %% 100 < 85 THEN 'question'
    WHEN id %% 100 < 86 THEN 'owner' WHEN id %% 100 < 90 THEN 'acted-again' ELSE 'passive' END,
  CASE WHEN ended_at > %(recent)s THEN 'waiting' WHEN id %% 7 = 0 THEN 'failed'
    ELSE 'completed' END,
  CASE WHEN id %% 100 = 84 THEN 'It had 2 GB; the bound is 2 GB.'
    WHEN id %% 100 = 85 THEN 'not submitted by the portal' ELSE '' END,
  '{}', 1, '{}', ended_at, ended_at, ended_at, 0, '', ended_at,
  CASE WHEN ended_at > %(recent)s THEN 'waiting' WHEN id %% 7 = 0 THEN 'not-recovered'
    ELSE 'by-rule' END,
  ended_at, wall_seconds * cpus, 0
FROM jobs_job
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--decisions", type=int, default=1_000_000)
    parser.add_argument("--visits", type=int, default=10, help="of each page")
    parser.add_argument("--directory", type=Path)
    options = parser.parse_args()
    with database(options.directory) as (base, url):
        set_up_django(base, url, STATIC_DIR=str(base / "static"), LOG_LEVEL="ERROR")
        from django.core.management import call_command

        from apps.recovery.models import Decision

        call_command("collectstatic", verbosity=0, interactive=False)
        if not Decision.objects.exists():
            fill(options.decisions)
        figures = visit_pages(addresses(), options.visits)
        print(json.dumps({"decisions": Decision.objects.count(), **figures}))


def fill(count: int) -> None:
    from django.db import connection

    from apps.recovery.domain.figures.daily_effects import recount_days
    from apps.recovery.domain.recoveries import monday_of, recount_weeks
    from apps.recovery.models import RecoveryRule
    from benchmarks.job_rows import Jobs

    at = datetime.now(UTC)
    Jobs(at, days=DAYS).add(count)
    rules = list(RecoveryRule.objects.values_list("pk", flat=True))
    values: dict[str, Any] = {
        "recent": at - timedelta(days=7),
        "rules": rules,
        "count": len(rules),
    }
    with connection.cursor() as cursor:
        cursor.execute(VERDICTS, values)
        cursor.execute(DECISIONS, values)
        cursor.execute("VACUUM ANALYZE")
    RecoveryRule.objects.update(mode="active", version=3)
    for rule in RecoveryRule.objects.all():
        for number in (2, 3):
            rule.versions.create(number=number, definition=rule.definition, at=at, by="fill")
    days = [at.date() - timedelta(days=number) for number in range(DAYS + 2)]
    recount_days(days)
    recount_weeks({monday_of(day) for day in days})


def addresses() -> list[str]:
    """Return the pages and lists, each with its filters."""
    from apps.recovery.domain.decisions.owner_questions import owner_questions_for
    from apps.recovery.domain.recoveries import monday_of
    from apps.recovery.models import Decision, RecoveryRule

    rule = RecoveryRule.objects.earliest("position").pk
    question = Decision.objects.filter(arm="question", outcome="waiting").latest("pk").pk
    owner = owner_questions_for(shifter()).latest("pk").pk
    monday = monday_of(datetime.now(UTC).date())
    week = f"/recovery/weeks/{monday - timedelta(days=7)}/"
    decisions = f"/recovery/rules/{rule}/decisions/"
    return [
        "/recovery/",
        f"/recovery/rules/{rule}/",
        decisions,
        f"{decisions}?version=3",
        f"{decisions}?version=1&arm=acted",
        f"{decisions}?version=1&arm=acted&outcome=failed",
        f"{decisions}?arm=owner",
        f"{decisions}?page=200",
        week,
        f"{week}?recovery=by-rule",
        f"{week}?category=service",
        f"{week}?experiment=EXP03&category=service",
        "/recovery/questions/",
        f"/recovery/questions/{question}/",
        f"/recovery/owners/{owner}/",
        "/api/v1/recovery-rules/",
        "/api/v1/recovery-decisions/",
        f"/api/v1/recovery-decisions/?rule={rule}&arm=acted&outcome=failed",
    ]


if __name__ == "__main__":
    main()
