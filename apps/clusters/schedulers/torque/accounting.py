"""Torque's accounting files `server_priv/accounting/YYYYMMDD`: a line per event, in local time."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import partial
from pathlib import Path
from typing import NamedTuple

from apps.clusters.schedulers.base import Flagged, JobRecord, SchedulerError
from apps.clusters.schedulers.plausibility import checked
from apps.clusters.schedulers.torque.records import (
    TorqueEvent,
    attempts_of,
    read_facts,
    unreadable_figures,
)
from apps.core.domain.secrets.masking import text

# How long after its deletion a job may end.
SETTLING = timedelta(minutes=10)
# How many days back the first event of a job is searched for.
LOOKBACK_DAYS = 60

_ENDS = frozenset((b"E", b"D", b"A", b"R"))
_TIME = re.compile(rb"(\d\d)/(\d\d)/(\d{4}) (\d\d):(\d\d):(\d\d)", re.ASCII)


class _Line(NamedTuple):
    time: bytes
    kind: bytes
    job_id: bytes
    facts: bytes


class Accounting:
    """The accounting files in `directory`, with times in `zone` (None: the zone of this host)."""

    def __init__(self, directory: Path, zone: tzinfo | None) -> None:
        self.directory = directory
        self.zone = zone
        self._bad_lines: list[Flagged] = []

    def finished_jobs(
        self, *, since: datetime, until: datetime, settled_before: datetime
    ) -> Iterator[JobRecord | Flagged]:
        """Yield every attempt that ended in [since, until), and lines that cannot be parsed.

        Raises `SchedulerError`. The files of the interval name the jobs; earlier files are read
        back to the first event of each job.
        """
        self._bad_lines = []
        days = self._days()
        first = self._day_of(since)
        last = self._day_of(until) + timedelta(days=1)
        lines = {}
        for day in days:
            if first <= day <= last:
                lines[day] = self._lines(day)
        ended: set[bytes] = set()
        for lines_of_day in lines.values():
            ended.update(line.job_id for line in lines_of_day if self._is_end(line, since))

        events: dict[bytes, list[TorqueEvent]] = defaultdict(list)
        for lines_of_day in lines.values():
            self._add(events, lines_of_day, ended)
        self._look_back(
            events, [day for day in days if first - timedelta(days=LOOKBACK_DAYS) <= day < first]
        )
        yield from self._bad_lines
        for job_id in sorted(events):
            of_job = events[job_id]
            raw = partial(
                "\n".join,
                [f"{event.at:%Y-%m-%dT%H:%M:%SZ} {event.kind} {event.facts}" for event in of_job],
            )
            try:
                records = list(attempts_of(of_job, settled_before=settled_before))
            except (ValueError, OverflowError) as error:
                yield Flagged(
                    f"{text(job_id)}\n{raw()}", f"The events of the job cannot be read: {error}."
                )
                continue
            for record in records:
                if since <= record.ended_at < until:
                    yield checked(record, raw, unreadable_figures(of_job))

    def _look_back(self, events: dict[bytes, list[TorqueEvent]], days: list[date]) -> None:
        """Prepend the earlier events of each job, back to the event that queued it."""
        incomplete = {job_id for job_id, job_events in events.items() if job_events[0].kind != "Q"}
        for day in reversed(days):
            if not incomplete:
                return
            earlier: dict[bytes, list[TorqueEvent]] = defaultdict(list)
            self._add(earlier, self._lines(day), incomplete)
            for job_id, earlier_events in earlier.items():
                events[job_id][:0] = earlier_events
                if any(event.kind == "Q" for event in earlier_events):
                    incomplete.discard(job_id)

    def _add(
        self,
        events: dict[bytes, list[TorqueEvent]],
        lines: Iterable[_Line],
        job_ids: Collection[bytes],
    ) -> None:
        """Append the events of these jobs to `events`."""
        for line in lines:
            if line.job_id not in job_ids:
                continue
            try:
                event = TorqueEvent(
                    self._time(line.time),
                    text(line.kind),
                    text(line.job_id),
                    read_facts(text(line.facts)),
                )
            except ValueError as error:
                self._bad_lines.append(Flagged(text(b";".join(line)), f"The line has {error}."))
            else:
                events[line.job_id].append(event)

    def _is_end(self, line: _Line, since: datetime) -> bool:
        """Return whether a line may record an end at `since` or later.

        A line is written after the end it records. Lines with an invalid time pass.
        """
        if line.kind not in _ENDS:
            return False
        try:
            return self._time(line.time) >= since
        except ValueError:
            return True

    def _lines(self, day: date) -> list[_Line]:
        """Return the split lines of a day. Raises `SchedulerError`."""
        path = self.directory / f"{day:%Y%m%d}"
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise SchedulerError(f"{path}: {error.strerror}") from error
        # A last line without a newline is incomplete.
        whole = content.split(b"\n")[:-1]
        split = [line.split(b";", 3) for line in whole]
        for parts in split:
            if parts[0] and len(parts) < 4:
                self._bad_lines.append(
                    Flagged(text(b";".join(parts)), "This is not a line of accounting.")
                )
        lines = []
        for parts in split:
            if len(parts) == 4:
                lines.append(_Line(*parts))
        return lines

    def _days(self) -> list[date]:
        try:
            names = [path.name for path in self.directory.iterdir()]
        except OSError as error:
            raise SchedulerError(f"{self.directory}: no accounting: {error.strerror}") from error
        days = set()
        for name in names:
            with suppress(ValueError):
                days.add(date.fromisoformat(name))
        return sorted(days)

    def _day_of(self, moment: datetime) -> date:
        return moment.astimezone(self.zone).date()

    def _time(self, raw: bytes) -> datetime:
        match = _TIME.fullmatch(raw)
        if not match:
            raise ValueError("no time")
        month, day, year, hour, minute, second = map(int, match.groups())
        return datetime(year, month, day, hour, minute, second, tzinfo=self.zone).astimezone(UTC)
