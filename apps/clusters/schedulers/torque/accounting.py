"""Torque's accounting files: `server_priv/accounting/YYYYMMDD`, a line for each event of a job, in local time."""

import logging
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta, tzinfo
from pathlib import Path

from apps.clusters.schedulers.base import JobRecord, SchedulerError
from apps.core.masking import text

from .records import Event, attempts_of, read_facts

logger = logging.getLogger(__name__)

SETTLING = timedelta(minutes=10)  # how long the end of a job may take after its deletion
LOOKBACK_DAYS = 60  # how far back the beginning of a job is looked for

_ENDS = frozenset("EDAR")
_TIME = re.compile(rb"(\d\d)/(\d\d)/(\d{4}) (\d\d):(\d\d):(\d\d)", re.ASCII)


class Accounting:
    """The accounting files in `directory`; `zone` is that of their times, the host's own where it is None."""

    def __init__(self, directory: Path, zone: tzinfo | None) -> None:
        self.directory = directory
        self.zone = zone

    def finished_jobs(self, *, since: datetime, until: datetime, settled_before: datetime) -> Iterator[JobRecord]:
        """Yield every attempt that ended in [since, until). Raises `SchedulerError`.

        The files of the interval name the jobs; those before are read back to the first event of each of them.
        """
        days = self._days()
        first, last = self._day_of(since), self._day_of(until) + timedelta(days=1)
        events: dict[str, list[Event]] = defaultdict(list)
        here = [event for day in days if first <= day <= last for event in self._events(day, lambda _: True)]
        ended = {event.job_id for event in here if event.kind in _ENDS}
        for event in here:
            if event.job_id in ended:
                events[event.job_id].append(event)
        self._look_back(events, [day for day in days if first - timedelta(days=LOOKBACK_DAYS) <= day < first])
        for job_id in sorted(events):
            try:
                records = list(attempts_of(events[job_id], settled_before=settled_before))
            except (ValueError, OverflowError) as error:
                logger.error("accounting of job %s left out: %s", job_id, error)
                continue
            yield from (record for record in records if since <= record.ended_at < until)

    def _look_back(self, events: dict[str, list[Event]], days: list[date]) -> None:
        """Put before the events of each job those that were earlier, back to the one that queued it."""
        begun = {job_id for job_id, known in events.items() if known[0].kind == "Q"}
        for day in reversed(days):
            sought = events.keys() - begun
            if not sought:
                return
            earlier: dict[str, list[Event]] = defaultdict(list)
            for event in self._events(day, sought.__contains__):
                earlier[event.job_id].append(event)
            for job_id, found in earlier.items():
                events[job_id][:0] = found
                if any(event.kind == "Q" for event in found):
                    begun.add(job_id)

    def _events(self, day: date, wanted: Callable[[str], bool]) -> Iterator[Event]:
        path = self.directory / f"{day:%Y%m%d}"
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return
        except OSError as error:
            raise SchedulerError(f"{path}: {error.strerror}") from error
        for line in content.split(b"\n")[:-1]:  # what has no newline is still being written
            parts = line.split(b";", 3)
            if len(parts) < 4:
                continue
            job_id = text(parts[2])
            if not wanted(job_id):
                continue
            try:
                yield Event(self._time(parts[0]), text(parts[1]), job_id, read_facts(text(parts[3])))
            except ValueError as error:
                logger.error("%s: line of job %s left out: %s", path, job_id, error)

    def _days(self) -> list[date]:
        try:
            names = [path.name for path in self.directory.iterdir()]
        except OSError as error:
            raise SchedulerError(f"{self.directory}: no accounting: {error.strerror}") from error
        return sorted(filter(None, map(_day, names)))

    def _day_of(self, moment: datetime) -> date:
        return moment.astimezone(self.zone).date()

    def _time(self, raw: bytes) -> datetime:
        found = _TIME.fullmatch(raw)
        if not found:
            raise ValueError("no time")
        month, day, year, hour, minute, second = map(int, found.groups())
        return datetime(year, month, day, hour, minute, second, tzinfo=self.zone).astimezone(UTC)


def _day(name: str) -> date | None:
    try:
        return datetime.strptime(name, "%Y%m%d").date() if re.fullmatch(r"[0-9]{8}", name) else None  # noqa: DTZ007
    except ValueError:
        return None
