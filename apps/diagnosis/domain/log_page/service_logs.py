"""Show lines from logs of services, attached to incidents, between a job's lines of that time."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from django.utils import timezone

from apps.diagnosis.domain.log_page.rows import Fold, PageLine
from apps.diagnosis.domain.reading.log_texts import LogText
from apps.diagnosis.engine.formats.line_times import LineTime, local_offset, times_in
from apps.jobs.models import Job
from apps.statusboard.enums import NoteKind
from apps.statusboard.models import Incident, IncidentNote

#: Maximum number of lines shown in one log: the last ones, which are nearest to its end.
MOST_LINES = 200
#: The start of a log, whose first time reveals the time zone of its clock.
_HEAD_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class ServiceLine:
    """A line from the log of a service, attached to an incident."""

    at: datetime
    service: str
    origin: str
    text: str
    incident: Incident
    kind: str = field(default="service", init=False)


Row = PageLine | Fold | ServiceLine


def service_lines(job: Job) -> list[ServiceLine]:
    """Return the attached lines that services wrote while a job ran, sorted by time.

    A line without a time has the time of the previous line. Times without a zone are in the
    portal's time zone.
    """
    if job.started_at is None:
        return []
    incidents = Incident.objects.overlapping(job.started_at, job.ended_at)
    notes = IncidentNote.objects.filter(kind=NoteKind.LOG, incident__in=incidents).select_related(
        "incident__service"
    )
    lines = []
    for note in notes:
        for line in _lines_with_times(note):
            if job.started_at <= line.at <= job.ended_at:
                lines.append(line)
    return sorted(lines, key=lambda line: line.at)[-MOST_LINES:]


def _lines_with_times(note: IncidentNote) -> list[ServiceLine]:
    data = note.text.encode()
    times = {}
    for time in times_in(data, 0, near=note.at):
        times[time.offset] = time.at
        if time.at.tzinfo is None:
            times[time.offset] = timezone.make_aware(time.at, timezone.get_default_timezone())
    lines = []
    offset = 0
    at = None
    for raw in data.split(b"\n"):
        at = times.get(offset, at)
        offset += len(raw) + 1
        if at and raw.strip():
            lines.append(
                ServiceLine(
                    at,
                    note.incident.service.name,
                    note.origin,
                    raw.decode().rstrip(),
                    note.incident,
                )
            )
    return lines


def with_service_lines(
    rows: Sequence[PageLine | Fold],
    lines: Sequence[ServiceLine],
    *,
    text: LogText,
    begin: int,
    data: bytes,
    job: Job,
) -> list[Row]:
    """Insert lines of services before the first later row of a window.

    `data` are the bytes of the window, which begins at the byte `begin` of the log. Without
    comparable times in the log, no lines are inserted.
    """
    if not lines or not rows:
        return list(rows)
    times = _times(text, begin, data, job)
    if not times:
        return list(rows)
    offsets = [row.offset if isinstance(row, PageLine) else row.begin for row in rows]
    # A clock that steps back, or output that comes late, must not pull lines forward.
    latest_times = []
    latest = datetime.min.replace(tzinfo=UTC)
    for time in times:
        latest = max(latest, time.at)
        latest_times.append(latest)

    lines_before_row: dict[int, list[ServiceLine]] = {}
    for line in lines:
        later = bisect_right(latest_times, line.at)
        if later == len(times):
            if begin + len(data) >= text.end:
                lines_before_row.setdefault(len(rows), []).append(line)
        elif later or begin == text.begin:
            row_number = bisect_left(offsets, times[later].offset)
            lines_before_row.setdefault(row_number, []).append(line)
    merged: list[Row] = []
    for number, row in enumerate(rows):
        merged += [*lines_before_row.get(number, ()), row]
    return [*merged, *lines_before_row.get(len(rows), ())]


def _times(text: LogText, begin: int, data: bytes, job: Job) -> list[LineTime]:
    """Return the times of the window's lines in UTC, without those whose time zone is unknown."""
    start = job.started_at or job.ended_at
    head = list(times_in(text.read(text.begin, text.begin + _HEAD_BYTES), text.begin, near=start))
    times = list(times_in(data, begin, near=start))
    naive = []
    for time in (*head, *times):
        if time.at.tzinfo is None:
            naive.append(time.at)
    if naive:
        ahead = local_offset(naive, start, job.ended_at)
    else:
        ahead = timedelta()
    if ahead is None:
        return [time for time in times if time.at.tzinfo]
    zoned = []
    for time in times:
        zoned.append(
            time if time.at.tzinfo else LineTime(time.offset, time.at.replace(tzinfo=UTC) - ahead)
        )
    return zoned
