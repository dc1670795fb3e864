"""Daily totals of decisions: what pages and the stop rule read instead of counting decisions."""

from collections.abc import Collection
from datetime import UTC, date, datetime, time, timedelta

from django.db.models import Count, Sum

from apps.core.domain.locks import lock_for_this_transaction
from apps.recovery.models import DailyEffect, Decision

_SAME = ("rule_id", "version", "experiment_id", "arm", "outcome")


def recount_days(days: Collection[date]) -> None:
    """Count the decisions of these days (UTC) anew, in the caller's transaction."""
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
