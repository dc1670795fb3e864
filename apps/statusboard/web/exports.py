"""The board for readers outside the portal.

They need a session, unless PUBLIC_STATUS is set.
"""

from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from apps.core.web.query import number_of
from apps.statusboard.domain.board import iri
from apps.statusboard.domain.board.board import read_board
from apps.statusboard.domain.board.exports import (
    atom_feed,
    headline,
    statuspage_summary,
    summarise_for_badge,
    write_calendar,
)
from apps.statusboard.domain.incidents.incidents import open_incidents
from apps.statusboard.domain.maintenance.announcements import public_announcements
from apps.statusboard.domain.maintenance.windows import windows_ahead
from apps.statusboard.enums import State

#: Maximum and default number of objects in a response of the IRI API, as in its reference.
MOST_OBJECTS = 1000
OBJECTS = 100
IRI_BASE = "/services/iri/status"
BADGE_COLOURS = {
    State.UP: "#1a7f4b",
    State.DEGRADED: "#9a6700",
    State.DOWN: "#b3261e",
    State.MAINTENANCE: "#5b4bb5",
}


def _refusal(request: HttpRequest) -> HttpResponse | None:
    if settings.PUBLIC_STATUS or request.user.is_authenticated:
        return None
    return HttpResponse("Log in, or ask for PUBLIC_STATUS to be set.\n", "text/plain", 401)


@login_not_required
@require_safe
def public_board(request: HttpRequest) -> HttpResponse:
    """Show states, incidents with their updates, maintenance and announcements to everyone.

    The page has no links to other pages of the portal.
    """
    if _refusal(request):
        return redirect_to_login(request.get_full_path())
    at = timezone.now()
    rows = read_board(at, zone=timezone.get_current_timezone())
    context = {
        "at": at,
        "headline": headline(rows),
        "rows": rows,
        "incidents": open_incidents().prefetch_related("notes")[:50],
        "windows": windows_ahead(at)[:50],
        "announcements": public_announcements(at)[:50],
    }
    return render(request, "statusboard/public.html", context)


@login_not_required
@require_safe
def summary(request: HttpRequest) -> HttpResponse:
    return _refusal(request) or JsonResponse(statuspage_summary(timezone.now()))


@login_not_required
@require_safe
def windows_calendar(request: HttpRequest) -> HttpResponse:
    refused = _refusal(request)
    return refused or HttpResponse(
        write_calendar(timezone.now(), request.get_host()), "text/calendar; charset=utf-8"
    )


@login_not_required
@require_safe
def incidents_feed(request: HttpRequest) -> HttpResponse:
    page = settings.PORTAL_URL + reverse("statusboard:public-board")
    return _refusal(request) or HttpResponse(
        atom_feed(timezone.now(), page), "application/atom+xml; charset=utf-8"
    )


@login_not_required
@require_safe
def status_badge(request: HttpRequest) -> HttpResponse:
    """Show the state of all services as a badge that shows a word, not only a colour."""
    if refused := _refusal(request):
        return refused
    state, text = summarise_for_badge(timezone.now())
    width = 62 + 7 * len(text)
    context = {
        "text": text,
        "width": width,
        "right_width": width - 56,
        "colour": BADGE_COLOURS.get(state, "#6b7280"),
    }
    return HttpResponse(render_to_string("statusboard/badge.svg", context), "image/svg+xml")


@login_not_required
@require_safe
def iri_objects(request: HttpRequest, kind: str, key: str | None = None) -> HttpResponse:
    """Respond as the DOE IRI API does: with a list without an envelope, or with one object."""
    if refused := _refusal(request):
        return refused
    objects = iri.KINDS[kind](timezone.now(), settings.PORTAL_URL + IRI_BASE)
    if key is not None:
        item = next((item for item in objects if item["id"] == key), None)
        if item is None:
            return JsonResponse({"detail": "Item not found"}, status=404)
        return JsonResponse(item)
    if unknown := sorted(request.GET.keys() - {"offset", "limit"}):
        return JsonResponse(
            {"detail": f"Unknown parameter {unknown[0]!r}. Known are offset and limit."}, status=400
        )
    offset = number_of(request.GET.get("offset", "0"))
    limit = number_of(request.GET.get("limit", str(OBJECTS)))
    if offset is None or limit is None or limit > MOST_OBJECTS:
        return JsonResponse(
            {"detail": f"offset is a number from 0, limit one from 0 to {MOST_OBJECTS}."},
            status=400,
        )
    return JsonResponse(objects[offset : offset + limit], safe=False)
