"""The status board, and the forms that edit it."""

from collections import Counter
from collections.abc import Callable
from datetime import datetime
from functools import partial
from operator import attrgetter
from typing import Any

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from apps.accounts.web.http_request import AuthenticatedRequest
from apps.core.web.errors import show_errors
from apps.core.web.moments import MomentField
from apps.core.web.query import read_query_or_warn
from apps.core.web.sorting import read_sort, sort_rows
from apps.statusboard.domain.board.availability import DAYS, HOURLY_DAYS
from apps.statusboard.domain.board.board import read_board
from apps.statusboard.domain.incidents.incidents import (
    incidents_since,
    open_incident,
    open_incidents,
)
from apps.statusboard.domain.maintenance.announcements import (
    announcements_ahead,
    mark_read,
    pin_announcement,
    post_announcement,
    withdraw_announcement,
)
from apps.statusboard.domain.maintenance.windows import (
    cancel_window,
    schedule_window,
    windows_ahead,
)
from apps.statusboard.domain.monitoring.rules import add_rule
from apps.statusboard.domain.monitoring.sources import source_faults, sources_with_counts
from apps.statusboard.enums import State
from apps.statusboard.models import (
    Announcement,
    DowntimeWindow,
    Incident,
    MonitoringSource,
    Service,
    UnmappedAlert,
)
from apps.statusboard.permissions import may_run_board
from apps.statusboard.web.forms import (
    NO_SERVICE,
    AnnouncementForm,
    CancelForm,
    NewIncidentForm,
    PinForm,
    ReasonForm,
    RuleForm,
    WindowForm,
)

#: The columns by which open incidents can be sorted.
INCIDENT_ORDERS: dict[str, Callable[[Incident], Any]] = {
    "service": lambda incident: incident.service.name.casefold(),
    "incident": lambda incident: incident.title.casefold(),
    "state": lambda incident: "stale" if incident.stale_at else incident.state,
    "started": attrgetter("started_at"),
    "source": lambda incident: str(incident.source or incident.opened_by).casefold(),
}
#: The values of the parameter `history` of the board.
_BY_HOUR = {"hours": True, "days": False}
#: The columns by which monitoring sources can be sorted.
SOURCE_ORDERS: dict[str, Callable[[MonitoringSource], Any]] = {
    "source": lambda source: source.name.casefold(),
    "seen": attrgetter("last_seen_at"),
    "valid": attrgetter("covered_until"),
    "services": attrgetter("covered"),
    "unmapped": attrgetter("unmapped_alerts"),
}


@require_safe
def status_board(request: AuthenticatedRequest) -> HttpResponse:
    at = timezone.now()
    by_hour = bool(read_query_or_warn(request, "history", _BY_HOUR.get, expected="hours or days"))
    zone = timezone.get_current_timezone()
    sort = read_sort(request, INCIDENT_ORDERS, default="-started")
    since = read_query_or_warn(request, "since", _moment, expected="a time")
    incidents = incidents_since(since, at) if since else open_incidents()
    rows = read_board(at, zone=zone, days=HOURLY_DAYS if by_hour else DAYS, by_hour=by_hour)
    counts: Counter[State] = Counter()
    faults = {}
    for row in rows:
        # A heading has no state of its own.
        if row.has_own_state:
            counts[row.own] += 1
        if row.fault:
            faults[row.fault.source_id] = row.fault
    context = {
        "at": at,
        "rows": rows,
        "by_hour": by_hour,
        "faults": list(faults.values()),
        "counts": [(state, counts[state]) for state in State if counts[state]],
        "incidents": sort_rows(incidents[:50], INCIDENT_ORDERS, sort),
        "since": since,
        "sort": sort,
        "windows": windows_ahead(at)[:50],
        "announcements": announcements_ahead(request.user, at)[:50],
        "may_run_board": may_run_board(request.user),
    }
    return render(request, "statusboard/board.html", context)


def _moment(text: str) -> datetime | None:
    """Parse a time; None if invalid."""
    try:
        moment: datetime | None = MomentField().clean(text)
    except forms.ValidationError:
        return None
    return moment


@require_http_methods(["GET", "POST"])
def report_incident(request: AuthenticatedRequest) -> HttpResponse:
    initial = {"service": request.GET.get("service", "")}
    form = NewIncidentForm(request.POST or None, initial=initial)
    return _form_page(request, form, "Report incident", "Report incident", open_incident)


@require_http_methods(["GET", "POST"])
def schedule_maintenance(request: AuthenticatedRequest) -> HttpResponse:
    initial = {
        "services": request.GET.getlist("service"),
        "starts_at": request.GET.get("start", ""),
    }
    form = WindowForm(request.POST or None, initial=initial)
    schedule = partial(schedule_window, zone=timezone.get_current_timezone())
    return _form_page(request, form, "Schedule maintenance", "Schedule maintenance", schedule)


@require_http_methods(["GET", "POST"])
def new_announcement(request: AuthenticatedRequest) -> HttpResponse:
    initial = {
        "title": request.GET.get("title", "")[:200],
        "services": request.GET.getlist("service"),
        "experiments": request.GET.getlist("experiment"),
    }
    form = AnnouncementForm(request.POST or None, initial=initial)
    return _form_page(request, form, "Post announcement", "Post announcement", post_announcement)


@require_POST
def cancel_maintenance(request: AuthenticatedRequest, pk: int) -> HttpResponse:
    _act(
        request,
        CancelForm(request.POST),
        cancel_window,
        window=get_object_or_404(DowntimeWindow, pk=pk),
    )
    return redirect("statusboard:board")


@require_POST
def retract_announcement(request: AuthenticatedRequest, pk: int) -> HttpResponse:
    announcement = get_object_or_404(Announcement.objects.visible_to(request.user), pk=pk)
    _act(request, ReasonForm(request.POST), withdraw_announcement, announcement=announcement)
    return redirect("statusboard:board")


@require_POST
def pin(request: AuthenticatedRequest, pk: int) -> HttpResponse:
    announcement = get_object_or_404(Announcement.objects.visible_to(request.user), pk=pk)
    _act(request, PinForm(request.POST), pin_announcement, announcement=announcement)
    return redirect("statusboard:board")


@require_POST
def read_announcement(request: AuthenticatedRequest, pk: int) -> HttpResponse:
    """Remove an announcement from the user's home page."""
    mark_read(
        announcement=get_object_or_404(Announcement.objects.visible_to(request.user), pk=pk),
        by=request.user,
    )
    return redirect("portal:home")


@require_safe
def sources(request: AuthenticatedRequest) -> HttpResponse:
    """Show the monitoring sources and the unmapped alerts."""
    unmapped = UnmappedAlert.objects.select_related("source")[:50]
    services = _service_choices()
    at = timezone.now()
    faults = source_faults(at)
    sort = read_sort(request, SOURCE_ORDERS, default="source")
    rows = sort_rows(sources_with_counts(), SOURCE_ORDERS, sort)
    context = {
        "at": at,
        "sort": sort,
        "sources": [(source, faults.get(source.pk)) for source in rows],
        "alerts": [(alert, RuleForm(alert=alert, services=services)) for alert in unmapped],
        "may_run_board": may_run_board(request.user),
    }
    return render(request, "statusboard/sources.html", context)


@require_POST
def map_alert(request: AuthenticatedRequest, pk: int) -> HttpResponse:
    alert = get_object_or_404(UnmappedAlert.objects.select_related("source"), pk=pk)
    form = RuleForm(request.POST, alert=alert, services=_service_choices())
    if form.is_valid() or not may_run_board(request.user):
        _act(request, form, _add_rule, alert=alert)
    else:
        # The list of alerts has a form for each alert, and is shown anew: it marks no fields.
        problems: list[str] = []
        for errors in form.errors.values():
            problems += map(str, errors)
        messages.error(request, f"No rule was added. {' '.join(problems)}")
    return redirect("statusboard:sources")


def _service_choices() -> list[tuple[str, str]]:
    return list(Service.objects.values_list("slug", "name"))


def _add_rule(
    *, alert: UnmappedAlert, labels: list[str], service: str, state: str, **fields: Any
) -> MonitoringSource:
    rule = add_rule(
        source=alert.source,
        matchers={name: alert.labels[name] for name in labels},
        service=None if service == NO_SERVICE else Service.objects.get(slug=service),
        state=State(state) if state else None,
        **fields,
    )
    return rule.source


def _form_page(
    request: AuthenticatedRequest,
    form: forms.Form,
    title: str,
    button: str,
    function: Callable[..., Any],
) -> HttpResponse:
    """Show a page with one form; redirect to what was made: an incident's page, or the board."""
    if not may_run_board(request.user):
        raise PermissionDenied
    if request.method == "POST" and (made := _act(request, form, function)):
        return redirect(_place_of(made))
    context = {"form": form, "title": title, "button": button, "back": reverse("statusboard:board")}
    return render(
        request, "statusboard/form.html", context, status=400 if request.method == "POST" else 200
    )


def _place_of(made: object) -> str:
    """Return the URL at which what a form made is shown."""
    if isinstance(made, Incident):
        return made.get_absolute_url()
    board = reverse("statusboard:board")
    return f"{board}#announcements" if isinstance(made, Announcement) else board


def _act(
    request: AuthenticatedRequest, form: forms.Form, function: Callable[..., Any], **about: Any
) -> Any:
    """Call the domain function with a valid form's data; return what it returns, or None.

    Errors are shown beside the fields or as messages.
    """
    if not form.is_valid():
        if not may_run_board(request.user):
            raise PermissionDenied
        messages.error(request, "Nothing was saved. Correct the fields marked below.")
        return None
    with show_errors(request, form):
        done = function(by=request.user, at=timezone.now(), **about, **form.cleaned_data)
        messages.success(request, f"Saved “{done}”.")
        return done
    return None
