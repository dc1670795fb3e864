"""When jobs of a stage ended, so that a list of few jobs among millions need not read all."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from django.db.models import Q

from apps.jobs.domain.records.conversion import day_of
from apps.jobs.enums import DEBUG_STAGE
from apps.jobs.models import Job

#: More periods than these are searched as one.
MOST_PERIODS = 20
_DAY = timedelta(days=1)


def ended_with_stage(stage: str) -> Q:
    """Return a condition on `ended_at` that all jobs of a stage meet.

    No index has the stage: without the condition, all jobs are read to find a rare stage.
    """
    # Imported here, because the filters are loaded by processes that never use NumPy.
    from apps.jobs.domain.statistics.blocks import days_to_recount
    from apps.jobs.domain.statistics.cube import TIME, CubeQuery, count
    from apps.jobs.domain.statistics.explorer import ids_of_stages

    if stage.lower().endswith(DEBUG_STAGE):
        return Q()  # Statistics leave these jobs out.
    oldest = Job.objects.order_by("ended_at").values_list("ended_at", flat=True).first()
    newest = Job.objects.order_by("-ended_at").values_list("ended_at", flat=True).first()
    if oldest is None or newest is None:
        return Q()

    until = day_of(newest) + _DAY
    # Jobs that are counted in the meantime are then found twice rather than not at all.
    days = days_to_recount(before=until)
    if ids := ids_of_stages({stage}):
        by_day = CubeQuery(day_of(oldest), until, (TIME,), {"stage": ids}, frozenset({"jobs"}))
        for hours in count(by_day)[TIME].tolist():
            days.add(datetime.fromtimestamp(hours * 3600, UTC))
    return _on(days)


def _on(days: Iterable[datetime]) -> Q:
    """Return the condition that jobs ended on these days."""
    periods: list[list[datetime]] = []
    for day in sorted(days):
        if periods and periods[-1][1] == day:
            periods[-1][1] = day + _DAY
        else:
            periods.append([day, day + _DAY])
    if not periods:
        return Q(pk__in=[])
    if len(periods) > MOST_PERIODS:
        periods = [[periods[0][0], periods[-1][1]]]
    condition = Q()
    for start, end in periods:
        condition |= Q(ended_at__gte=start, ended_at__lt=end)
    # PostgreSQL reads an index only between the ends of one period.
    return Q(ended_at__gte=periods[0][0], ended_at__lt=periods[-1][1]) & condition
