"""Failed jobs of the last day whose logs were refused: how many, and the newest reason."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Exists, OuterRef

from apps.diagnosis.enums import HarvestState
from apps.diagnosis.models import LogHarvest, Verdict

PERIOD = timedelta(hours=24)
#: More are not counted, so that the health page stays fast when every log is refused.
MOST_COUNTED = 1_000


@dataclass(frozen=True, slots=True)
class RefusedLogs:
    """How many jobs that ended since `since` have refused logs, at most `MOST_COUNTED`.

    `newest` is the reason of the log that was refused last, "" if there is none.
    """

    count: int
    since: datetime
    newest: str

    @property
    def is_capped(self) -> bool:
        return self.count == MOST_COUNTED


def refused_logs(*, at: datetime) -> RefusedLogs:
    """Count the refused logs of the last 24 hours, by the index of refused harvests.

    `/failures/jobs/?log=path_not_allowed&start=SINCE` lists the same jobs.
    """
    since = at - PERIOD
    # A log is read after its job ended: the index needs to be read since then only.
    refused = LogHarvest.objects.filter(
        state=HarvestState.PATH_NOT_ALLOWED, harvested_at__gte=since
    )
    verdicts = Verdict.objects.filter(
        Exists(refused.filter(job=OuterRef("job"))), ended_at__gte=since
    )
    count = verdicts[:MOST_COUNTED].count()
    newest = ""
    if count:
        newest = refused.order_by("-harvested_at").values_list("last_error", flat=True)[0]
    return RefusedLogs(count, since, newest)
