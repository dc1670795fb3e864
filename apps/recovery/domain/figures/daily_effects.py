"""Daily totals of decisions: what pages and the stop rule read instead of counting decisions."""

from collections.abc import Collection, Iterable
from datetime import date

from django.db import connection

from apps.core.domain.locks import lock_for_this_transaction
from apps.recovery.models import DailyEffect

#: Counts decisions by their day (UTC) and adds the counts to the totals of that day.
_ADD = """
INSERT INTO recovery_dailyeffect AS total
  (day, rule_id, version, experiment_id, arm, outcome,
   jobs, failed_core_seconds, retry_core_seconds)
SELECT (decided_at AT TIME ZONE 'UTC')::date AS day, rule_id, version, experiment_id, arm, outcome,
  count(*), sum(failed_core_seconds), sum(retry_core_seconds)
FROM recovery_decision WHERE {decisions}
GROUP BY 1, rule_id, version, experiment_id, arm, outcome
ON CONFLICT (day, rule_id, version, experiment_id, arm, outcome) DO UPDATE SET
  jobs = total.jobs + excluded.jobs,
  failed_core_seconds = total.failed_core_seconds + excluded.failed_core_seconds,
  retry_core_seconds = total.retry_core_seconds + excluded.retry_core_seconds
"""
_ADD_NEW = _ADD.format(decisions="id = ANY(%s) AND decided_at IS NOT NULL")
_ADD_DAY = _ADD.format(
    decisions="decided_at >= %s::timestamp AT TIME ZONE 'UTC' "
    "AND decided_at < (%s::timestamp + interval '1 day') AT TIME ZONE 'UTC'"
)


def add_decisions(decisions: Iterable[int]) -> None:
    """Add new decisions, by primary key, to the totals of their days (UTC).

    In the caller's transaction. The cost does not depend on how many decisions the days have.
    """
    lock_for_this_transaction("recovery.daily_effects")
    with connection.cursor() as cursor:
        cursor.execute(_ADD_NEW, [list(decisions)])


def recount_days(days: Collection[date]) -> None:
    """Count all decisions of these days (UTC), in the caller's transaction."""
    if not days:
        return
    lock_for_this_transaction("recovery.daily_effects")
    DailyEffect.objects.filter(day__in=days).delete()
    with connection.cursor() as cursor:
        for day in sorted(days):
            cursor.execute(_ADD_DAY, [day, day])
