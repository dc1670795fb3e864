"""Maintenance windows and incidents on each day of a month."""

from calendar import Calendar
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, tzinfo

from apps.statusboard.domain.maintenance.windows import windows_between
from apps.statusboard.enums import severity_of
from apps.statusboard.models import DowntimeWindow, Incident

#: Maximum incidents of a month, newest first.
MOST_INCIDENTS = 500
#: Incidents of a day that are shown at once; the others are folded away, as windows come first.
MOST_OF_DAY = 2


@dataclass
class CalendarDay:
    """A day with its windows and incidents, those that took a service down first.

    `is_inside` is false for days of adjacent months.
    """

    date: date
    is_inside: bool
    windows: list[DowntimeWindow] = field(default_factory=list)
    incidents: list[Incident] = field(default_factory=list)

    @property
    def shown_incidents(self) -> list[Incident]:
        return self.incidents[:MOST_OF_DAY]

    @property
    def folded_incidents(self) -> list[Incident]:
        return self.incidents[MOST_OF_DAY:]


def month_of_services(
    month: date, *, at: datetime, zone: tzinfo, slug: str = ""
) -> list[list[CalendarDay]]:
    """Return the weeks of a month, starting on Monday, for all services or for one.

    Runs three queries. An open incident lasts until `at`. Days are those of `zone`.
    """
    dates = Calendar().monthdatescalendar(month.year, month.month)
    days = {}
    weeks = []
    for dates_of_week in dates:
        week = []
        for day_date in dates_of_week:
            day = CalendarDay(day_date, day_date.month == month.month)
            days[day_date] = day
            week.append(day)
        weeks.append(week)

    start = datetime.combine(dates[0][0], time(), zone).astimezone(UTC)
    end = datetime.combine(dates[-1][-1] + timedelta(days=1), time(), zone).astimezone(UTC)
    windows = windows_between(start, end)
    incidents = (
        Incident.objects.overlapping(start, end).filter(merged_into=None).select_related("service")
    )
    if slug:
        windows = windows.filter(services__slug=slug)
        incidents = incidents.filter(service__slug=slug)
    for window in windows:
        for touched in _touched(days, window.starts_at, window.over_at, zone):
            touched.windows.append(window)
    for incident in incidents[:MOST_INCIDENTS]:
        for touched in _touched(days, incident.started_at, incident.ended_at or at, zone):
            touched.incidents.append(incident)
    for day in days.values():
        # The sort is stable: of those alike, the newest stay first.
        day.incidents.sort(key=lambda incident: severity_of(incident.state))
    return weeks


def _touched(
    days: dict[date, CalendarDay], starts_at: datetime, ends_at: datetime, zone: tzinfo
) -> list[CalendarDay]:
    """Return the days that [starts_at, ends_at) overlaps, at least the day of its start."""
    first = starts_at.astimezone(zone).date()
    last = max(first, (ends_at - timedelta(microseconds=1)).astimezone(zone).date())
    return [day for date, day in days.items() if first <= date <= last]
