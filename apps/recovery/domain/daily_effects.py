"""Daily totals of decisions: what pages and the stop rule read instead of counting decisions."""

from collections.abc import Collection, Iterable
from datetime import UTC, date, datetime, time, timedelta

from django.db import connection
from django.db.models import Count, Sum

from apps.core.domain.locks import lock_for_this_transaction
from apps.recovery.models import DailyEffect, Decision

_SAME = ("rule_id", "version", "experiment_id", "arm", "outcome")
_ADDED = """
INSERT INTO recovery_dailyeffect AS total
  (day, rule_id, version, experiment_id, arm, outcome,
   jobs, failed_core_seconds, retry_core_seconds)
SELECT %s, rule_id, version, experiment_id, arm, outcome,
  count(*), sum(failed_core_seconds), sum(retry_core_seconds)
FROM recovery_decision WHERE id = ANY(%s)
GROUP BY rule_id, version, experiment_id, arm, outcome
ON CONFLICT (day, rule_id, version, experiment_id, arm, outcome) DO UPDATE SET
  jobs = total.jobs + excluded.jobs,
  failed_core_seconds = total.failed_core_seconds + excluded.failed_core_seconds,
  retry_core_seconds = total.retry_core_seconds + excluded.retry_core_seconds
"""


def add_to_day(day: date, decisions: Iterable[int]) -> None:
    """Add new decisions, by primary key, to the totals of their day (UTC).

    In the caller's transaction. The cost does not depend on how many decisions the day has.
    """
    lock_for_this_transaction("recovery.daily_effects")
    with connection.cursor() as cursor:
        cursor.execute(_ADDED, [day, list(decisions)])


def recount_days(days: Collection[date]) -> None:
    """Count all decisions of these days (UTC), in the caller's transaction."""
    if not days:
        return
    lock_for_this_transaction("recovery.daily_effects")
    DailyEffect.objects.filter(day__in=days).delete()
    totals = []
    for day in sorted(days):
        totals += _totals_of(day)
    DailyEffect.objects.bulk_create(totals, batch_size=1000)


def _totals_of(day: date) -> list[DailyEffect]:
    start = datetime.combine(day, time(), tzinfo=UTC)
    decisions = Decision.objects.filter(
        decided_at__gte=start, decided_at__lt=start + timedelta(days=1)
    )
    rows = (
        decisions.order_by()
        .values(*_SAME)
        .annotate(
            jobs=Count("pk"),
            failed=Sum("failed_core_seconds"),
            retried=Sum("retry_core_seconds"),
        )
    )
    totals = []
    for row in rows:
        total = DailyEffect(
            day=day,
            jobs=row["jobs"],
            failed_core_seconds=row["failed"],
            retry_core_seconds=row["retried"],
            **{name: row[name] for name in _SAME},
        )
        totals.append(total)
    return totals
