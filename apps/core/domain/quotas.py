"""Quotas: how much a user, a token or an experiment may store in an hour or a day, counted in the cache."""

import logging
from dataclasses import dataclass
from datetime import UTC, datetime

from django.core.cache import cache

log = logging.getLogger(__name__)
HOUR, DAY = 3_600, 86_400


@dataclass(frozen=True, slots=True)
class Quota:
    """An amount per period of `seconds`, which begins with the hour or day of UTC.

    Without the cache nothing is counted, and so nothing refused.
    """

    name: str
    most: int
    seconds: int

    def add(self, owner: object, amount: int, *, at: datetime) -> int:
        """Count an amount of an owner, 0 to ask only; return how much the owner has used in this period."""
        key = f"quota:{self.name}:{owner}:{self._period(at)}"
        try:
            cache.add(key, 0, timeout=self.seconds)
            return int(cache.incr(key, amount))
        except Exception:  # any failure of the cache's driver
            log.exception("cannot count %s", self.name)
            return 0

    def ends_at(self, at: datetime) -> datetime:
        """Return when the next period begins."""
        return datetime.fromtimestamp((self._period(at) + 1) * self.seconds, UTC)

    def wait_seconds(self, at: datetime) -> float:
        """Return the seconds until the next period."""
        return (self.ends_at(at) - at).total_seconds()

    def _period(self, at: datetime) -> int:
        return int(at.timestamp()) // self.seconds
