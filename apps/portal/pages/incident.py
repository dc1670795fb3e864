"""The page of an incident: its cost, its course on a time axis, and notes of users."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from django.db.models import QuerySet
from django.utils import timezone

from apps.accounts.models import User
from apps.core.domain.events import events_of
from apps.core.domain.quantities import format_duration, round_duration
from apps.core.models import Event
from apps.diagnosis.domain.causes.impact.count import LONGEST_SHOWN
from apps.diagnosis.domain.causes.impact.figures import Bins, ImpactFigures, impact_of
from apps.jobs.domain.records.jobs import collections_behind, counted_until
from apps.jobs.models import Collection
from apps.portal.pages.time_axis import Axis, AxisMark, ticks_of
from apps.recovery.domain.decisions.explanations import planned_retries_of
from apps.statusboard.domain.states.history import states_of_incident
from apps.statusboard.domain.states.timeline import BEGINNING, Claim
from apps.statusboard.enums import NoteKind
from apps.statusboard.models import Incident, IncidentNote, StateInterval
from apps.statusboard.permissions import may_run_board
from apps.submission.domain.retries.offers import RetryOffer, retry_offer

#: Height of the plot of failed jobs in pixels.
_HEIGHT = 96


@dataclass(frozen=True)
class Bar:
    """Failed jobs of a bin: position and width in percent, heights in pixels from the bottom."""

    x: float
    width: float
    usual: float
    above: float
    title: str

    @property
    def usual_y(self) -> float:
        return _HEIGHT - self.usual

    @property
    def above_y(self) -> float:
        return _HEIGHT - self.usual - self.above


@dataclass(frozen=True)
class Course:
    """The time axis of an incident and its lanes."""

    bars: Sequence[Bar]
    states: Sequence[AxisMark]
    alerts: Sequence[AxisMark]
    updates: Sequence[AxisMark]
    ticks: Sequence[AxisMark]
    wash: AxisMark
    highest: int
    bin: str


@dataclass(frozen=True)
class IncidentPage:
    """What the page of an incident shows beside its forms, by its names in the template.

    `ended_at` is None while one of `members`, the incident and those merged into it, is open.
    `alerts` are the members with their letters on the axis. The impact includes the jobs that ended
    before `as_of`, except those of clusters that are `behind`; None if it was never counted. A
    count of no jobs is none while no accounting reaches the incident.
    `updates` are numbered as on the axis, newest first.
    """

    at: datetime
    incident: Incident
    members: list[Incident]
    alerts: list[tuple[str, Incident]]
    started_at: datetime
    ended_at: datetime | None
    lasted: timedelta
    states: list[Claim]
    impact: ImpactFigures
    as_of: datetime | None
    behind: list[Collection]
    offer: RetryOffer | None
    course: Course
    updates: list[tuple[int, IncidentNote]]
    logs: list[IncidentNote]
    earlier: QuerySet[Incident]
    has_others: bool
    events: QuerySet[Event]
    may_run_board: bool


def incident_page(*, incident: Incident, user: User, at: datetime) -> IncidentPage:
    """Return what the page of an incident shows to a user, without its forms."""
    members = [incident, *incident.merged.select_related("source").order_by("started_at", "pk")]
    notes = list(IncidentNote.objects.filter(incident__in=members))
    updates = [note for note in notes if note.kind == NoteKind.UPDATE]
    figures = impact_of(incident, user)
    as_of = figures.counted_at
    late: list[Collection] = []
    if as_of is not None:
        late = list(collections_behind(at))
        as_of = min(as_of, counted_until(at, with_behind=False) or as_of)
    started_at = min(member.started_at for member in members)
    if not figures.exposed and _no_accounting_reaches(started_at, late):
        figures = replace(figures, counted_at=None)
    ends = [member.ended_at for member in members if member.ended_at]
    ended_at = max(ends) if len(ends) == len(members) else None
    lasted = (ended_at or at) - started_at
    shown_from = max(started_at, (ended_at or at) - LONGEST_SHOWN)
    same_service = Incident.objects.filter(service=incident.service_id, merged_into=None)
    others = same_service.exclude(pk=incident.pk)
    may_run = may_run_board(user)
    return IncidentPage(
        at=at,
        incident=incident,
        members=members,
        alerts=_lettered(members),
        started_at=started_at,
        ended_at=ended_at,
        lasted=lasted,
        states=states_of_incident(incident, at),
        impact=figures,
        as_of=as_of,
        behind=late,
        offer=offer_for(incident, user, at) if figures.eligible else None,
        course=_course(members, updates, figures, shown_from, ended_at, at),
        updates=list(enumerate(updates, 1))[::-1],
        logs=[note for note in notes if note.kind == NoteKind.LOG],
        earlier=others.filter(started_at__lt=started_at).order_by("-started_at")[:3],
        has_others=may_run and others.exists(),
        events=events_of(incident),
        may_run_board=may_run,
    )


def _no_accounting_reaches(moment: datetime, late: Sequence[Collection]) -> bool:
    """Return whether the accounting of no cluster was read up to this moment.

    `late` are the clusters that are behind: without one, every cluster was read further.
    """
    if not any(collection.collected_until < moment for collection in late):
        return False
    read = Collection.objects.filter(cluster__collects=True, collected_until__gte=moment)
    return not read.exists()


def offer_for(incident: Incident, user: User, at: datetime) -> RetryOffer:
    """Return what a user can retry of an incident, beside what recovery rules will retry."""
    planned = planned_retries_of(incident, user)
    return retry_offer(source=incident, user=user, at=at, planned=planned.jobs)


def _course(
    members: Sequence[Incident],
    updates: Sequence[IncidentNote],
    figures: ImpactFigures,
    started_at: datetime,
    ended_at: datetime | None,
    at: datetime,
) -> Course:
    bins = figures.bins
    length = max((ended_at or at) - started_at, timedelta(minutes=10))
    start = bins.start if bins else started_at - length / 2
    axis = Axis(start, min((ended_at or at) + length / 4, at) if ended_at else at)
    if axis.end <= axis.start:
        axis = Axis(start, start + timedelta(minutes=10))
    rows = StateInterval.objects.filter(service=members[0].service_id).overlapping(
        axis.start, axis.end
    )
    states = []
    for row in rows.order_by("started_at"):
        states.append(
            axis.span(
                max(row.started_at, axis.start),
                row.ended_at,
                state=row.state,
                label=_label(row, axis, at),
                title=(
                    f"{row.state} {_format_time(row.started_at)} to "
                    f"{_format_time(row.ended_at) if row.ended_at else 'now'}"
                ),
            )
        )
    bars, highest = _bars(bins, figures, axis, started_at, ended_at or at)
    marks = []
    for number, note in enumerate(updates, 1):
        if note.at <= axis.end:
            title = f"{_format_time(note.at)} {note}"
            marks.append(AxisMark(axis.place(note.at), label=str(number), title=title))
    return Course(
        bars=bars,
        states=states,
        alerts=_alerts(members, axis),
        updates=marks,
        ticks=ticks_of(axis),
        wash=axis.span(started_at, ended_at),
        highest=highest,
        bin=format_duration(bins.seconds) if bins else "",
    )


def _label(row: StateInterval, axis: Axis, at: datetime) -> str:
    """Return the label of a state for its bar, if there is room for it."""
    start = max(row.started_at, axis.start)
    end = min(row.ended_at or axis.end, axis.end)
    lasted = max(min(end, at) - start, timedelta(0))
    share = (end - start) / (axis.end - axis.start)
    if share < 0.08:
        return ""
    if share > 0.25:
        return f"{row.state} {round_duration(lasted.total_seconds())}"
    return row.state


def _bars(
    bins: Bins | None, figures: ImpactFigures, axis: Axis, started_at: datetime, over: datetime
) -> tuple[list[Bar], int]:
    """Return the failed jobs by time.

    While the incident lasts, each bar is split at the usual number for a bin.
    """
    if bins is None or not bins.failed:
        return [], 0
    highest = max(*bins.failed, 1)
    lasted = max((over - started_at).total_seconds(), bins.seconds)
    if figures.excess:
        usual = figures.excess.expected * bins.seconds / lasted
    else:
        usual = float(highest)
    bars = []
    for number, failed in enumerate(bins.failed):
        start = bins.start + timedelta(seconds=number * bins.seconds)
        end = start + timedelta(seconds=bins.seconds)
        during = start < over and end > started_at
        below = min(failed, usual) if during else float(failed)
        mark = axis.span(start, min(end, axis.end))
        bars.append(
            Bar(
                mark.x,
                max(mark.width - 0.25, 0.2),
                round(_HEIGHT * below / highest, 1),
                round(_HEIGHT * (failed - below) / highest, 1),
                f"{_format_time(start)}: {failed} failed",
            )
        )
    return bars, highest


def _lettered(members: Iterable[Incident]) -> list[tuple[str, Incident]]:
    """Return alerts with their letters on the axis."""
    letters = []
    for number, incident in enumerate(members):
        letters.append((chr(ord("a") + number % 26), incident))
    return letters


def _alerts(members: Iterable[Incident], axis: Axis) -> list[AxisMark]:
    marks = []
    for letter, incident in _lettered(members):
        started_at = incident.started_at
        marks.append(
            AxisMark(
                axis.place(started_at),
                label=letter,
                title=f"{_format_time(started_at)} {incident.title}",
            )
        )
        if incident.ended_at:
            title = (
                f"{_format_time(incident.ended_at)} {incident.title}: "
                f"{incident.get_resolution_display().lower()}"
            )
            marks.append(
                AxisMark(axis.place(incident.ended_at), label="✓", title=title, state="up")
            )
    return marks


def _format_time(at: datetime) -> str:
    return f"{timezone.localtime(max(at, BEGINNING)):%H:%M}"
