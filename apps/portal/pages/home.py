"""The home page, with content from several apps. It reads roll-ups, not raw jobs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from urllib.parse import urlencode

from django.db.models import Count, Exists, F, OuterRef, Q, QuerySet, Sum, Window
from django.urls import reverse
from django.utils import timezone

from apps.accounts.enums import Role
from apps.accounts.models import User
from apps.accounts.permissions import is_opg, scope_of
from apps.clusters.schedulers.base import JobState
from apps.core.models import Event
from apps.diagnosis.domain.causes.totals import CauseTotal, failures_by_cause
from apps.diagnosis.domain.groups.waits import waits_by_service
from apps.diagnosis.domain.reading.backlog import query_of_jobs
from apps.diagnosis.enums import VerdictKind
from apps.diagnosis.models import CauseTotals
from apps.jobs.domain.records.conversion import last_hours
from apps.jobs.domain.records.jobs import (
    are_being_counted,
    collections_behind,
    counted_until,
    totals_as_of,
)
from apps.jobs.domain.totals.totals import TotalsReport, wasted_hours
from apps.jobs.enums import NONE
from apps.jobs.models import Collection, HourlyEnds
from apps.portal.pages.fix_first import FixFirst, fix_first
from apps.portal.pages.home_answers import (
    Broken,
    FailureChart,
    RunAnswer,
    broke_since_yesterday,
    can_run,
    failures_by_hour,
)
from apps.portal.pages.home_changes import Changes, changes_since
from apps.portal.pages.incident import offer_for
from apps.portal.pages.setup_steps import is_empty
from apps.production.domain.approvals.inbox import InboxItem, inbox_items, waiting_for
from apps.production.domain.approvals.wait_counts import WaitCounts, count_waits
from apps.production.domain.forecast import Forecast
from apps.production.domain.holds import ActiveHold, wide_holds
from apps.production.domain.priority.shown_forecasts import shown_forecasts
from apps.production.enums import CLOSED
from apps.production.models import Attention, Request
from apps.progress.domain.stage_counts import StageProgress, production_now
from apps.recovery.domain.recoveries import Week, WithoutPerson, weeks_for, who_recovered
from apps.statusboard.domain.board.availability import AvailabilitySlot, read_hourly_slots
from apps.statusboard.domain.board.board import BoardRow, read_board
from apps.statusboard.domain.maintenance.announcements import unread_announcements
from apps.statusboard.domain.maintenance.hand_over_notes import hand_over_notes
from apps.statusboard.enums import Cause as BoardCause
from apps.statusboard.enums import State, severity_of
from apps.statusboard.models import Announcement
from apps.submission.domain.retries.offers import RetryOffer

#: Maximum number of causes on the home page. The others are summed in one line.
CAUSES = 6
HOURS = 24
#: How many requests that wait for the user the home page shows.
OWN_TURNS = 2
#: How many of the user's own requests the home page shows.
OWN_REQUESTS = 5

_SIGNS = {
    VerdictKind.SERVICE: "down",
    VerdictKind.CODE: "",
    VerdictKind.RESOURCE: "degraded",
    VerdictKind.USER: "planned",
    VerdictKind.UNKNOWN: "unknown",
}


@dataclass(frozen=True)
class Cause:
    """A line of "why jobs failed", with the URL of its list."""

    label: str
    jobs: int
    next_step: str
    sign: str
    url: str


@dataclass(frozen=True)
class ServiceRow:
    """A service of the board, and the failed jobs of 24 hours whose verdict names it, with their
    list.

    `jobs_of_outage` of them failed in the outage that lasts, if it is not older.
    """

    row: BoardRow
    jobs_hit: int
    url: str
    jobs_of_outage: int = 0


@dataclass(frozen=True)
class Failures:
    """Jobs of the last 24 hours that did not complete, by cause, and all jobs that ended.

    Of the `failed_jobs`, which the list `url` shows, `waiting` have no verdict yet.
    """

    causes: list[Cause]
    failed_jobs: int
    waiting: int
    all_jobs: int
    url: str

    @property
    def with_verdict(self) -> int:
        return self.failed_jobs - self.waiting


@dataclass(frozen=True)
class HomePage:
    """What the home page shows, by its names in the template."""

    at: datetime

    # Three answers.
    can_run: RunAnswer
    broken: Broken
    offer: RetryOffer | None
    waits: WaitCounts
    your_turn: list[InboxItem]

    # What is first for the role, and what changed since the last visit.
    own_requests: list[tuple[Request, Forecast]]
    fix_first: FixFirst
    recovered: Week
    without_person: WithoutPerson
    changes: Changes | None
    hand_over_note: Event | None

    # Services: those that are not up with their last week by hour.
    services: list[ServiceRow]
    sick: list[tuple[ServiceRow, Sequence[AvailabilitySlot]]]
    well: list[ServiceRow]
    unmonitored: list[ServiceRow]
    announcements: QuerySet[Announcement]

    # Jobs, and how far their accounting is read.
    failures_chart: FailureChart
    failures: Failures
    waste: TotalsReport
    as_of: datetime | None
    behind: QuerySet[Collection]
    counted_until: datetime | None
    being_counted: bool

    # Production.
    production: list[StageProgress]
    holds: list[ActiveHold]

    # What the user can do.
    may_request: bool
    may_operate: bool
    is_empty: bool
    no_role: bool


def home_page(*, user: User, at: datetime) -> HomePage:
    """Return what the home page shows to a user."""
    services = services_with_failures(user=user, at=at)
    sick = []
    well = []
    unmonitored = []
    for entry in services:
        if not entry.row.has_own_state:
            continue
        if entry.row.own == State.UP:
            well.append(entry)
        elif entry.row.cause == BoardCause.NOT_MONITORED:
            unmonitored.append(entry)
        else:
            sick.append(entry)
    sick.sort(key=lambda entry: severity_of(entry.row.own))
    hours = read_hourly_slots(
        [entry.row.service for entry in sick], at, zone=timezone.get_current_timezone()
    )
    names = {entry.row.service.slug: entry.row.service.name for entry in services}
    waits = count_waits(user, at)
    waiting = waiting_for(user, at).select_related("submitted_by").prefetch_related("attention")
    changes = None
    if user.previous_visit_at:
        changes = changes_since(since=user.previous_visit_at, user=user, at=at)
    broken = broke_since_yesterday(user=user, at=at)
    offer = offer_for(broken.to_retry, user, at) if broken.to_retry else None
    broken = broken.with_offer(offer)
    in_outages = broken.victims_by_service
    sick = [
        replace(entry, jobs_of_outage=in_outages.get(entry.row.service.pk, 0)) for entry in sick
    ]
    recovered = weeks_for(user, at=at)[-1]
    return HomePage(
        at=at,
        can_run=can_run(user=user, at=at),
        broken=broken,
        offer=offer,
        waits=waits,
        your_turn=inbox_items(waiting[:OWN_TURNS], user, at),
        own_requests=own_requests(user=user, at=at),
        fix_first=fix_first(user=user, at=at),
        recovered=recovered,
        without_person=who_recovered(recovered, user),
        changes=changes,
        hand_over_note=hand_over_notes().first() if is_opg(user) else None,
        services=services,
        sick=[(entry, hours[entry.row.service.pk]) for entry in sick],
        well=well,
        unmonitored=unmonitored,
        announcements=unread_announcements(user, at),
        failures_chart=failures_by_hour(user=user, at=at),
        failures=why_failed(user=user, at=at, names=names),
        waste=wasted_hours(user, at=at),
        as_of=totals_as_of(),
        behind=collections_behind(at),
        counted_until=counted_until(at),
        being_counted=are_being_counted(at),
        production=production_now(user),
        holds=wide_holds(user),
        may_request=scope_of(user).has_anywhere(Role.LIAISON),
        may_operate=is_opg(user),
        is_empty=not services and is_empty(),
        no_role=not scope_of(user).roles,
    )


def own_requests(*, user: User, at: datetime) -> list[tuple[Request, Forecast]]:
    """Return the open requests of a liaison with their forecasts, those in need of attention
    first. Each has `open_requests`, the number of all.
    """
    if not scope_of(user).has_anywhere(Role.LIAISON):
        return []
    own = Request.objects.visible_to(user).filter(Q(created_by=user) | Q(submitted_by=user))
    needs_attention = Exists(Attention.objects.filter(request=OuterRef("pk")))
    requests = own.exclude(state__in=CLOSED).annotate(
        needs_attention=needs_attention, open_requests=Window(Count("pk"))
    )
    urgent_first = requests.order_by("-needs_attention", F("deadline").asc(nulls_last=True), "-pk")
    shown = list(urgent_first.prefetch_related("attention")[:OWN_REQUESTS])
    return list(zip(shown, shown_forecasts(shown, at=at), strict=True))


def services_with_failures(*, user: User, at: datetime) -> list[ServiceRow]:
    """Return the board, with the jobs that failed because of each service in the last 24 hours."""
    zone = timezone.get_current_timezone()
    start, end = last_hours(at, 24)
    totals = (
        CauseTotals.objects.visible_to(user)
        .filter(hour__gte=start, hour__lt=end)
        .exclude(service="")
    )
    jobs_by_service = dict(totals.order_by().values_list("service").annotate(Sum("jobs")))

    rows = []
    for row in read_board(at, zone=zone):
        slug = row.service.slug
        jobs = jobs_by_service.get(slug, 0)
        address = _failed_jobs(start, end, service=slug) if jobs else ""
        rows.append(ServiceRow(row, jobs, address))
    return rows


def _failed_jobs(start: datetime, end: datetime, **filters: str) -> str:
    """Return the URL of the list of jobs that failed in [start, end)."""
    window = {"start": f"{start:%Y-%m-%dT%H:%MZ}", "end": f"{end:%Y-%m-%dT%H:%MZ}"}
    return f"{reverse('diagnosis:failed-jobs')}?{urlencode({**filters, **window})}"


def why_failed(*, user: User, at: datetime, names: Mapping[str, str]) -> Failures:
    """Return the top causes of the last 24 hours, including the current hour.

    `names` has the names of services by slug.
    """
    start, end = last_hours(at, HOURS)
    totals = CauseTotals.objects.visible_to(user).filter(hour__gte=start, hour__lt=end)
    rows = failures_by_cause(totals)
    ended = HourlyEnds.objects.visible_to(user).filter(hour__gte=start, hour__lt=end)
    jobs = ended.aggregate(all=Sum("jobs"), broken=Sum("jobs", filter=~Q(state=JobState.COMPLETED)))
    decided = sum(row.jobs for row in rows)
    waiting = max(0, (jobs["broken"] or 0) - decided)
    waits = waits_by_service(at)
    causes = []
    for row in rows[:CAUSES]:
        causes.append(_cause(row, names, start, end, waits.get(row.service.lower(), "")))
    if other_jobs := sum(row.jobs for row in rows[CAUSES:]):
        causes.append(
            Cause(
                "Other causes",
                other_jobs,
                f"{len(rows) - CAUSES} more",
                "unknown",
                reverse("diagnosis:failures"),
            )
        )
    if waiting:
        url = reverse("jobs:list") + query_of_jobs(start, end, verdict=NONE)
        causes.append(Cause("Logs are being read", waiting, "no verdict yet", "unknown", url))
    return Failures(
        causes,
        failed_jobs=decided + waiting,
        waiting=waiting,
        all_jobs=jobs["all"] or 0,
        url=reverse("jobs:list") + query_of_jobs(start, end),
    )


def _cause(
    row: CauseTotal, names: Mapping[str, str], start: datetime, end: datetime, wait: str
) -> Cause:
    kind = VerdictKind(row.verdict)
    waits = wait and kind == VerdictKind.SERVICE and row.succeeded < row.jobs
    name = names.get(row.service, row.service)
    if name and row.cause:
        label = f"{name} · {row.cause}"
    else:
        label = row.cause or name or kind.label
    url = _failed_jobs(
        start, end, verdict=row.verdict, cause=row.cause or "-", service=row.service or "-"
    )
    return Cause(label, row.jobs, wait if waits else row.next_step, _SIGNS[kind], url)
