"""Count the jobs that fail by the same known error and service at about the same time.

An outage fails many jobs, while a code problem mistaken for a service problem stands alone. A rule
can therefore require a number of such jobs before it acts.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

from django.db.models import Sum

from apps.diagnosis.models import CauseTotals, Verdict

#: How long after its end a job waits for others that fail alike.
COMPANY_WITHIN = timedelta(hours=1)
_HOUR = timedelta(hours=1)


class AlikeJobs:
    """Counts the jobs that fail in the same way as each of some verdicts, in one query.

    Jobs count that end in the same hour of the clock, the previous or the next.
    """

    def __init__(self, verdicts: Iterable[Verdict]) -> None:
        hours: set[datetime] = set()
        for verdict in verdicts:
            hours.update(_hours_around(verdict.ended_at))
        totals = CauseTotals.objects.filter(hour__in=hours).order_by()
        rows = totals.values_list("hour", "cause", "service").annotate(Sum("jobs"))
        self._jobs = {(hour, cause, service): jobs for hour, cause, service, jobs in rows}

    def count(self, verdict: Verdict) -> int:
        """Return how many jobs fail like this one, which counts, too."""
        jobs = 0
        for hour in _hours_around(verdict.ended_at):
            jobs += self._jobs.get((hour, verdict.cause, verdict.service), 0)
        return max(jobs, 1)


def _hours_around(at: datetime) -> tuple[datetime, datetime, datetime]:
    hour = at.replace(minute=0, second=0, microsecond=0)
    return hour - _HOUR, hour, hour + _HOUR
