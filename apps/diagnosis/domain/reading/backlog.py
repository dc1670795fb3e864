"""Count the jobs that wait for the analysis of their logs, from totals."""

from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlencode

from django.db.models import Sum

from apps.accounts.models import User
from apps.clusters.schedulers.base import JobState
from apps.diagnosis.models import CauseTotals
from apps.jobs.domain.records.conversion import last_hours
from apps.jobs.enums import NONE, NOT_COMPLETED
from apps.jobs.models import HourlyEnds

HOURS = 24


@dataclass(frozen=True, slots=True)
class LogBacklog:
    """The number of jobs that did not complete in the last 24 hours and have no verdict yet.

    They ended in [start, end), which are whole hours.
    """

    jobs: int
    start: datetime
    end: datetime

    @property
    def query(self) -> str:
        """Return the query of the list of these jobs."""
        return query_of_jobs(self.start, self.end, verdict=NONE)


def query_of_jobs(start: datetime, end: datetime, **filters: str) -> str:
    """Return the query of the list of jobs that ended in [start, end) and did not complete."""
    period = {"ended_from": f"{start:%Y-%m-%dT%H:%MZ}", "ended_to": f"{end:%Y-%m-%dT%H:%MZ}"}
    return "?" + urlencode({"state": NOT_COMPLETED, **filters, **period})


def log_backlog(*, user: User, at: datetime) -> LogBacklog:
    """Return how many logs of jobs that the user may see are not analysed yet. Two queries."""
    start, end = last_hours(at, HOURS)
    ended = HourlyEnds.objects.visible_to(user).filter(hour__gte=start, hour__lt=end)
    judged = CauseTotals.objects.visible_to(user).filter(hour__gte=start, hour__lt=end)

    jobs = ended.exclude(state=JobState.COMPLETED).aggregate(jobs=Sum("jobs", default=0))["jobs"]
    verdicts = judged.aggregate(jobs=Sum("jobs", default=0))["jobs"]
    return LogBacklog(max(0, jobs - verdicts), start, end)
