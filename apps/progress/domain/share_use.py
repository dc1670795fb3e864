"""Recent use of each experiment, from the hourly totals, for fair shares of production."""

from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Sum

from apps.jobs.domain.records.conversion import hour_of
from apps.jobs.models import HourlyTotals
from apps.production.models import ShareUse

DAYS = 30


@transaction.atomic
def count_share_use(*, at: datetime) -> int:
    """Sum the core time of requests' jobs in the last `DAYS` days by experiment.

    Return how many experiments have used any.
    """
    since = hour_of(at - timedelta(days=DAYS))
    totals = (
        HourlyTotals.objects.filter(hour__gte=since)
        .exclude(request_key="")
        .exclude(experiment=None)
    )
    sums = totals.order_by().values_list("experiment").annotate(used=Sum("core_seconds"))
    rows = []
    for experiment, used in sums:
        if used:
            rows.append(ShareUse(experiment_id=experiment, core_seconds=used, days=DAYS, as_of=at))
    ShareUse.objects.exclude(pk__in=[row.pk for row in rows]).delete()
    ShareUse.objects.bulk_create(
        rows,
        update_conflicts=True,
        unique_fields=["experiment"],
        update_fields=["core_seconds", "days", "as_of"],
    )
    return len(rows)
