"""Quiet hours and digest hour in the user's time zone, correct on days when clocks change."""

from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo


@dataclass(frozen=True)
class Hours:
    """Quiet hours, from one time to another, also across midnight.

    There are none if both times are equal or None.
    """

    zone: ZoneInfo
    digest_hour: int = 8
    quiet_from: time | None = None
    quiet_until: time | None = None

    def is_quiet(self, at: datetime) -> bool:
        start, end = self.quiet_from, self.quiet_until
        if start is None or end is None or start == end:
            return False
        now = at.astimezone(self.zone).time()
        return start <= now < end if start < end else now >= start or now < end

    def allowed(self, at: datetime) -> datetime:
        """Return `at`, or the end of the quiet hours that it falls into."""
        for _ in range(4):  # a clock set back may lead into the quiet hours again
            if not self.is_quiet(at) or self.quiet_until is None:
                return at
            at = self._next(at, self.quiet_until)
        return at

    def next_digest(self, at: datetime) -> datetime:
        """Return the next digest after `at` that may be sent."""
        return self.allowed(self._next(at, time(self.digest_hour)))

    def _next(self, at: datetime, clock: time) -> datetime:
        """Return the next moment after `at` at which the clock shows this time.

        A time that is skipped in spring is an hour later.
        """
        today = at.astimezone(self.zone).date()
        moments = []
        for days in (0, 1, 2):
            local = datetime.combine(today + timedelta(days=days), clock, self.zone)
            for fold in (0, 1):
                moments.append(local.replace(fold=fold).astimezone(UTC))
        return min(moment for moment in moments if moment > at)
