"""Quotas: how much a user, a token or an experiment may store in an hour or a day,
counted in the cache.
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
#: After a failure of the cache nothing is counted for so long: a cache that hangs costs each call
#: many seconds.
PAUSE_SECONDS = 30


class _Pause:
    """Until when this process does not count, by its monotonic clock."""

    until = 0.0


@dataclass(frozen=True, slots=True)
class Quota:
    """An amount per period of `seconds`, which begins with the minute, hour or day of UTC.

    If the cache fails, nothing is counted for `PAUSE_SECONDS`, and so nothing refused.
    """

    name: str
    most: int
    seconds: int

    def add(self, owner: object, amount: int, *, at: datetime) -> int:
        """Count an amount of an owner, 0 to ask only; return how much the owner has used in this
        period.
        """
        if time.monotonic() < _Pause.until:
            return 0

        key = f"quota:{self.name}:{owner}:{self._period(at)}"
        try:
            cache.add(key, 0, timeout=self.seconds)
            return int(cache.incr(key, amount))
        except Exception:  # any failure of the cache's driver
            _Pause.until = time.monotonic() + PAUSE_SECONDS
            log.exception("cannot count %s; no quota is counted for %d s", self.name, PAUSE_SECONDS)
            return 0

    def ends_at(self, at: datetime) -> datetime:
        """Return when the next period begins."""
        return datetime.fromtimestamp((self._period(at) + 1) * self.seconds, UTC)

    def wait_seconds(self, at: datetime) -> float:
        """Return the seconds until the next period."""
        return (self.ends_at(at) - at).total_seconds()

    def refusal(self, message: str, *, at: datetime) -> LimitReached:
        """Return the error that says what is used up, and until when."""
        end = self.ends_at(at)
        return LimitReached(
            f"{message} Try again after {end:%H:%M} UTC.", wait_seconds=self.wait_seconds(at)
        )

    def _period(self, at: datetime) -> int:
        return int(at.timestamp()) // self.seconds
