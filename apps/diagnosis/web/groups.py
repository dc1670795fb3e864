"""Pages of failure groups: the triage list, the page of a group, and actions on groups."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.core.paginator import Paginator
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpResponse, QueryDict
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_POST, require_safe

from apps.accounts.models import User
from apps.accounts.web.http_request import AuthenticatedRequest
from apps.accounts.web.saved_views import views_context
from apps.clusters.domain import drain_command
from apps.core import charts
from apps.core.domain.events import events_of
from apps.core.errors import DomainError, NotAllowed
from apps.core.web.errors import show_errors
from apps.core.web.query import read_query_or_warn
from apps.core.web.sorting import read_sort, sort_rows
from apps.diagnosis.domain.causes.totals import last_decided_at, totals_between
from apps.diagnosis.domain.groups import group_list, triage
from apps.diagnosis.domain.groups.example_log import ExampleLine, list_example_lines
from apps.diagnosis.domain.groups.follow_ups import count_follow_ups
from apps.diagnosis.domain.groups.profile import profile_of
from apps.diagnosis.domain.groups.waits import name_of_service
from apps.diagnosis.domain.verdicts.experience import experience_of
from apps.diagnosis.enums import GROUP_MOVES, GroupKind, GroupStatus
from apps.diagnosis.filters import FailedJobs, FailureFilters
from apps.diagnosis.models import CauseTotals, DailyCauseTotals, FailureGroup, KnownError, Verdict
from apps.diagnosis.permissions import may_propose_known_errors
from apps.diagnosis.web.forms import GroupForm
from apps.jobs.domain.records.conversion import last_hours
from apps.jobs.domain.records.jobs import (
    SHORT_LAG,
    are_being_counted,
    collections_behind,
    counted_until,
)

VIEWS = {
    "": "All",
    "new": "New today",
    "unexplained": "Unexplained",
    "retry": "To retry",
    "mine": "Mine",
    "muted": "Muted",
}
#: The columns by which groups can be sorted within their sections.
COLUMNS = {
    "open": attrgetter("open"),
    "jobs": attrgetter("jobs"),
    "core": attrgetter("core_seconds"),
    "first": attrgetter("first_seen_at"),
}
MOST_OPEN_FIRST = "-open"
PAGE_SIZE = 25
JOBS_SHOWN = 20
EVENTS_SHOWN = 50
BULK = 100
#: Number of days that a group is muted, unless the user enters another.
MUTE_DAYS = 7


@dataclass(frozen=True)
class TotalsPeriod:
    """Whole hours [start, end) up to now, and the totals in them for the user and the filters.

    `hours` are the filtered hourly totals without a limit of time.
    """

    start: datetime
    end: datetime
    totals: list[QuerySet[Any]]
    hours: QuerySet[CauseTotals]
    filters: FailureFilters

    def jobs_query(self, **more: Any) -> str:
        """Return the query of the list of jobs that these totals count."""
        names = ("experiment", "cluster", "verdict", "stage", "status", "kind", "owner", "q")
        kept = {}
        for name in names:
            if values := [value for value in self.filters.data.getlist(name) if value]:
                kept[name] = values
        bounds = {"start": f"{self.start:%Y-%m-%dT%H:%MZ}", "end": f"{self.end:%Y-%m-%dT%H:%MZ}"}
        return "?" + urlencode(bounds | kept | more, doseq=True)


def _period(request: AuthenticatedRequest) -> TotalsPeriod:
    hourly = CauseTotals.objects.visible_to(request.user)
    filters = FailureFilters(request.GET, hourly, request=request)
    hours = 24
    if filters.is_valid():
        hours = int(filters.form.cleaned_data.get("hours") or 24)
    start, end = last_hours(timezone.now(), hours)
    daily = DailyCauseTotals.objects.visible_to(request.user)
    days = FailureFilters(request.GET, daily, request=request).qs
    totals = totals_between(filters.qs, days, start=start, end=end)
    return TotalsPeriod(start, end, totals, hours=filters.qs, filters=filters)


@require_safe
def failures(request: AuthenticatedRequest) -> HttpResponse:
    """Show failure groups in three sections, from totals; the period covers whole hours."""
    now = timezone.now()
    period = _period(request)
    view = _read_view(request)
    sums = group_list.sums_by_group(period.totals)
    follow_ups = count_follow_ups(_verdicts_in(period, request.user), user=request.user, at=now)
    all_rows = group_list.group_rows(sums, follow_ups)
    midnight = timezone.localtime(now).replace(hour=0, minute=0, second=0, microsecond=0)
    rows_by_view = {}
    for name in VIEWS:
        rows_by_view[name] = group_list.in_view(all_rows, name, request.user, since=midnight)

    sort = read_sort(request, COLUMNS, default=MOST_OPEN_FIRST)
    rows = rows_by_view[view]
    if period.filters.is_valid() and period.filters.form.cleaned_data.get("status"):
        rows = all_rows
    if sort != MOST_OPEN_FIRST:
        rows = group_list.by_section(sort_rows(rows, COLUMNS, sort))
    page = Paginator(rows, PAGE_SIZE).get_page(request.GET.get("page"))
    group_list.add_details(page.object_list, period.totals, period.hours, end=period.end)
    group_list.add_waits(page.object_list, now)
    triage.hide_lines_of_others(request.user, [row.group for row in page.object_list])
    for row in page.object_list:
        row.spark = charts.spark(
            row.hourly, sentence=f"24 hours, at most {max(row.hourly)} jobs an hour"
        )
    may_triage = triage.find_triageable(request.user, [row.pk for row in page.object_list])
    jobs_without_group = sums.get(None, group_list.GroupSums()).jobs
    context = {
        "period": period,
        "filter": period.filters,
        "more_open": any(
            request.GET.get(name)
            for name in period.filters.filters
            if name not in FailureFilters.FIRST
        ),
        "facets": group_list.facets_of(period.totals, all_rows),
        "views": [(name, label, len(rows_by_view[name])) for name, label in VIEWS.items()],
        "view": view,
        "sort": sort,
        "sections": group_list.sections_of(rows, page.object_list),
        "page": page,
        "jobs": sum(row.jobs for row in all_rows) + jobs_without_group,
        "core_seconds": sum(group_sums.core_seconds for group_sums in sums.values()),
        "query": period.jobs_query(),
        "last_decided_at": last_decided_at(),
        "behind": collections_behind(now),
        "counted_until": counted_until(now),
        "being_counted": not rows and are_being_counted(now),
        "seen_at": now,
        "mute_days": MUTE_DAYS,
        **views_context(request),
        "may_triage": may_triage,
        "some_for_others": 0 < len(may_triage) < len(page.object_list),
    }
    return render(request, "diagnosis/failures.html", context)


def _read_view(request: AuthenticatedRequest) -> str:
    """Return the view in the query; empty for all groups, also after a warning."""
    names = {name: name for name in VIEWS if name}
    expected = f"one of {', '.join(names)}"
    return read_query_or_warn(request, "view", names.get, expected=expected) or ""


def _verdicts_in(period: TotalsPeriod, user: User) -> QuerySet[Verdict]:
    """Return the verdicts on the jobs that the totals of a period count."""
    if not period.filters.is_valid():
        return Verdict.objects.none()
    query = QueryDict(period.jobs_query().removeprefix("?"))
    verdicts: QuerySet[Verdict] = FailedJobs(
        query, Verdict.objects.visible_to(user), request=period.filters.request
    ).qs
    return verdicts


def _visible_group(request: AuthenticatedRequest, pk: int) -> FailureGroup:
    return get_object_or_404(triage.visible_groups(request.user), pk=pk)


@require_safe
def group(request: AuthenticatedRequest, pk: int) -> HttpResponse:
    return _render_group(request, _visible_group(request, pk))


def _render_group(
    request: AuthenticatedRequest, group: FailureGroup, form: GroupForm | None = None
) -> HttpResponse:
    hours = CauseTotals.objects.visible_to(request.user).filter(group=group)
    days = DailyCauseTotals.objects.visible_to(request.user).filter(group=group)
    verdicts = (
        Verdict.objects.visible_to(request.user)
        .filter(group=group)
        .select_related("job__cluster", "experiment", "retried_on")
    )
    now = timezone.now()
    follow_ups = count_follow_ups(verdicts, user=request.user, at=now)
    [row] = group_list.group_rows(group_list.sums_by_group([days]), follow_ups)
    _, end = last_hours(now, group_list.SPARK_HOURS)
    group_list.add_details([row], [days], hours, end=end)
    group_list.add_waits([row], now)
    newest = list(verdicts.order_by("-ended_at", "-pk")[:JOBS_SHOWN])
    sees_all = triage.sees_all_of(request.user, group)
    if not sees_all and triage.has_line_of_first_job(group):
        group.line = ""
    example = _example(newest)
    example_lines = list_example_lines(example) if example else []
    experience = None
    if newest and group.kind == GroupKind.ERROR:
        experience = experience_of(newest[0], user=request.user, at=now, with_itself=True)
    context = {
        "group": group,
        "service_name": name_of_service(group.service),
        "row": row,
        "counted_until": _counted_until(row, newest),
        "chart": _chart(row, end),
        "example": example,
        "example_lines": example_lines,
        "experience": experience,
        "make_known_url": _known_error_url(group, example_lines)
        if may_propose_known_errors(request.user)
        else "",
        "verdicts": newest,
        "profile": profile_of(group) if sees_all else None,
        "sees_all": sees_all,
        "may_triage": triage.may_triage(request.user, group),
        "drain_command": _drain_command(group),
        "known_error": KnownError.objects.filter(pk=group.cause).first() if group.cause else None,
        "notes": group.notes.all(),
        "events": events_of(group).order_by("-id")[:EVENTS_SHOWN],
        "form": form or GroupForm(initial=_initial_values(group)),
        "moves": _status_buttons(group),
    }
    status = 200
    if form:
        status = 400 if form.errors else 409
    return render(request, "diagnosis/group.html", context, status=status)


def _counted_until(row: group_list.GroupRow, newest: Sequence[Verdict]) -> datetime | None:
    """Return until when the figures of a group have its jobs; None if they lack none for long."""
    at = timezone.now()
    for verdict in newest:
        # A verdict is counted within seconds, unless the portal is behind.
        if verdict.ended_at > row.last and verdict.decided_at < at - SHORT_LAG:
            return row.last
    return counted_until(at, {verdict.job.cluster_id for verdict in newest})


def _example(newest: Sequence[Verdict]) -> Verdict | None:
    """Return the newest of these verdicts with the most frequent cause; None if there are none.

    Jobs of one host or release fail for several causes, of which one may be another outage.
    """
    if not newest:
        return None
    [(usual_cause, _)] = Counter(verdict.cause for verdict in newest).most_common(1)
    return next(verdict for verdict in newest if verdict.cause == usual_cause)


def _drain_command(group: FailureGroup) -> str:
    if group.kind != GroupKind.HOST or group.cluster is None:
        return ""
    return drain_command(group.cluster, group.host, reason=f"F-{group.pk}: {group.title}")


def _known_error_url(group: FailureGroup, example_lines: Sequence[ExampleLine]) -> str:
    """Return the URL of a known-error form filled with the line that decided; "" without a line."""
    deciding = [line.text for line in example_lines if group.cause and line.pattern == group.cause]
    line = deciding[0] if deciding else group.line
    if not line or group.kind != GroupKind.ERROR:
        return ""
    query = {"line": line, "service": group.service, "verdict": group.verdict}
    return f"{reverse('diagnosis:known-error-new')}?{urlencode(query)}"


def _initial_values(group: FailureGroup) -> dict[str, Any]:
    return {
        "owner": group.owner,
        "days": MUTE_DAYS,
        "seen_at": group.status_at.isoformat(),
    }


def _status_buttons(group: FailureGroup) -> list[tuple[str, str]]:
    """Return the buttons that are possible in the current status of a group."""
    labels = {
        GroupStatus.KNOWN: "Mark as known",
        GroupStatus.RETRIED: "Mark as retried",
        GroupStatus.RESOLVED: "Resolve",
    }
    possible = GROUP_MOVES[GroupStatus(group.status)]
    moves = []
    for status, label in labels.items():
        if status in possible:
            moves.append((status.value, label))
    if group.status == GroupStatus.MUTED:
        return [("unmute", "Unmute"), *moves]
    return moves


def _chart(row: group_list.GroupRow, end: datetime) -> str:
    start = end - timedelta(hours=group_list.SPARK_HOURS)
    hours = [start + timedelta(hours=number) for number in range(group_list.SPARK_HOURS)]
    bins = []
    for hour, jobs in zip(hours, row.hourly, strict=True):
        bins.append(charts.Bin(f"{timezone.localtime(hour):%H:%M}", (jobs,)))
    sentence = (
        f"{sum(row.hourly)} jobs failed in the last 24 hours, at most {max(row.hourly)} in one hour"
    )
    return charts.bars(bins, [charts.Series("failed here", row.verdict)], sentence=sentence)


@require_POST
def act(request: AuthenticatedRequest, pk: int) -> HttpResponse:
    """Assign a group, change its status, or add a note."""
    group = _visible_group(request, pk)
    form = GroupForm(request.POST)
    if form.is_valid():
        with show_errors(request, form):
            _apply_action(group, form, request.user)
            messages.success(request, form.DONE[form.cleaned_data["do"]])
            return redirect(group)
    group.refresh_from_db()
    form.data = {**request.POST.dict(), "seen_at": group.status_at.isoformat()}
    return _render_group(request, group, form)


@require_POST
def act_on_several(request: AuthenticatedRequest) -> HttpResponse:
    """Assign, mute or resolve the selected groups; report those that cannot be changed."""
    form = GroupForm(request.POST)
    next_url = request.POST.get("next", "")
    group_pks = []
    for pk in request.POST.getlist("group"):
        if pk.isascii() and pk.isdigit() and len(pk) < 10:
            group_pks.append(int(pk))
    visible = triage.visible_groups(request.user)
    selected = visible.filter(pk__in=group_pks[:BULK]).order_by("pk")
    if not form.is_valid() or not selected:
        messages.error(
            request,
            " ".join(map(str, form.errors.get("days", []))) or "Select groups and an action.",
        )
    else:
        changed = 0
        for group in selected:
            try:
                _apply_action(group, form, request.user)
                changed += 1
            except (DomainError, NotAllowed) as error:
                messages.error(request, f"{group}: {error}")
        messages.success(request, f"{changed} group{'s' * (changed != 1)} changed.")
    hosts = {request.get_host()}
    is_ours = url_has_allowed_host_and_scheme(
        next_url, allowed_hosts=hosts, require_https=request.is_secure()
    )
    return redirect(next_url if is_ours else "diagnosis:failures")


@transaction.atomic
def _apply_action(group: FailureGroup, form: GroupForm, user: User) -> None:
    """Perform the action of the pressed button, and save the values typed for other buttons."""
    at = timezone.now()
    data = form.cleaned_data
    action = data["do"]
    text = data["text"]
    seen_at = data["seen_at"]
    owner = form.typed("owner")
    if action == "assign":
        owner = data["owner"] or user.username
    days = data["days"] if action == "muted" else form.typed("days")

    if owner:
        triage.assign_group(group=group, owner=owner, by=user, at=at, seen_at=seen_at)
        seen_at = at  # a status change below then conflicts only with changes by other users
    if days:
        until = at + timedelta(days=days)
        triage.set_status(
            group=group,
            status=GroupStatus.MUTED,
            by=user,
            at=at,
            muted_until=until,
            seen_at=seen_at,
        )
    elif action == "unmute":
        if not owner:  # assigning the group has already unmuted it
            triage.unmute_group(group=group, by=user, at=at, seen_at=seen_at)
    elif action not in ("assign", "note"):
        triage.set_status(group=group, status=GroupStatus(action), by=user, at=at, seen_at=seen_at)
    if action == "note" or text.strip():
        triage.add_note(group=group, text=text, by=user, at=at)
