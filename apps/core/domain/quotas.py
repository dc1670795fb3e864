"""Quotas on what a user, a token or an experiment may store per hour or day.

Amounts are counted in the cache.
"""

import logging
import time
from dataclasses import dataclass
from datetime import UTC, datetime

from django.core.cache import cache

from apps.core.errors import LimitReached

log = logging.getLogger(__name__)
MINUTE = 60
HOUR = 3_600
DAY = 86_400
#: Nothing is counted for this long after the cache failed: a hanging cache costs each call many
#: seconds.
PAUSE_SECONDS = 30


class _Pause:
    """When this process resumes counting, on its monotonic clock."""

    until = 0.0


@dataclass(frozen=True, slots=True)
class Quota:
    """An amount per period of `seconds`, aligned to minutes, hours or days in UTC.

    If the cache fails, nothing is counted or refused for `PAUSE_SECONDS`.
    """

    name: str
    most: int
    seconds: int

    def add(self, owner: object, amount: int, *, at: datetime) -> int:
        """Add an amount (0 to only query), and return how much the owner used in this period."""
        if time.monotonic() < _Pause.until:
            return 0

        key = f"quota:{self.name}:{owner}:{self._period(at)}"
        try:
            cache.add(key, 0, timeout=self.seconds)
            return int(cache.incr(key, amount))
        except Exception:
            # Any error of the cache's driver.
            _Pause.until = time.monotonic() + PAUSE_SECONDS
            log.exception("cannot count %s; no quota is counted for %d s", self.name, PAUSE_SECONDS)
            return 0

    def ends_at(self, at: datetime) -> datetime:
        """Return the start of the next period."""
        return datetime.fromtimestamp((self._period(at) + 1) * self.seconds, UTC)

    def wait_seconds(self, at: datetime) -> float:
        """Return the seconds until the next period."""
        return (self.ends_at(at) - at).total_seconds()

    def refusal(self, message: str, *, at: datetime) -> LimitReached:
        """Return the error that says what is used up and when to retry."""
        end = self.ends_at(at)
        return LimitReached(
            f"{message} Try again after {end:%H:%M} UTC.", wait_seconds=self.wait_seconds(at)
        )

    def _period(self, at: datetime) -> int:
        return int(at.timestamp()) // self.seconds
