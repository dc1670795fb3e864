"""The slack of a request: how long before its deadline it ends."""

import math
from dataclasses import dataclass

from apps.production.domain.forecast import Forecast
from apps.production.models import Request

#: Less slack than this many days is tight.
TIGHT_DAYS = 5


@dataclass(frozen=True)
class Slack:
    """Days between the end of a request and its deadline; negative if it is late."""

    days: float

    @property
    def level(self) -> str:
        """Return `ok`, `tight` or `over`."""
        return "over" if self.days < 0 else "tight" if self.days < TIGHT_DAYS else "ok"

    @property
    def days_late(self) -> int:
        return math.ceil(-self.days)


def slack_of(request: Request, forecast: Forecast | None) -> Slack | None:
    """Return the days between the likely end and the deadline; None if one of them is unknown."""
    if request.deadline is None or forecast is None or forecast.end is None:
        return None
    return Slack(float((request.deadline - forecast.end[1]).days))
