"""Recent work for requests: by experiment for fair shares, by day for the pace of clusters."""

from datetime import UTC, datetime, timedelta

from django.db import transaction
from django.db.models import QuerySet, Sum
from django.db.models.functions import TruncDate

from apps.jobs.domain.records.conversion import hour_of
from apps.jobs.models import HourlyTotals
from apps.production.domain.priority.pace import LOOK_BACK_DAYS
from apps.production.models import QueueState, ShareUse

DAYS = 30


@transaction.atomic
def count_share_use(*, at: datetime) -> int:
    """Sum the core time of requests' jobs in the last `DAYS` days by experiment.

    Return how many experiments have used any.
    """
    totals = _totals_of_requests().filter(hour__gte=hour_of(at - timedelta(days=DAYS)))
    sums = totals.order_by().values_list("experiment").annotate(used=Sum("core_seconds"))
    rows = []
    for experiment_pk, used in sums:
        if used:
            rows.append(
                ShareUse(experiment_id=experiment_pk, core_seconds=used, days=DAYS, as_of=at)
            )
    ShareUse.objects.exclude(pk__in=[use.pk for use in rows]).delete()
    ShareUse.objects.bulk_create(
        rows,
        update_conflicts=True,
        unique_fields=["experiment"],
        update_fields=["core_seconds", "days", "as_of"],
    )
    return len(rows)


def count_work_by_day(*, at: datetime) -> None:
    """Store the core time of requests' jobs on each of the last `LOOK_BACK_DAYS` whole days in UTC.

    The current day is not over, and would seem slow. It locks the state of the queue.
    """
    today = at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    since = today - timedelta(days=LOOK_BACK_DAYS)
    totals = _totals_of_requests().filter(hour__gte=since, hour__lt=today)
    by_day = totals.order_by().values_list(TruncDate("hour", tzinfo=UTC))
    sums = dict(by_day.annotate(Sum("core_seconds")))
    work_by_day = [sums[day] for day in sorted(sums) if sums[day]]
    QueueState.objects.get_or_create(pk=1)
    QueueState.objects.filter(pk=1).exclude(work_by_day=work_by_day).update(work_by_day=work_by_day)


def _totals_of_requests() -> QuerySet[HourlyTotals]:
    return HourlyTotals.objects.exclude(request_key="").exclude(experiment=None)
