"""The status board in the API, and the endpoint for monitoring feeds.

Everyone can read the board; the OPG can edit it.
"""

import base64
import logging
import time
from collections import Counter
from typing import Any

from django.contrib.auth.decorators import login_not_required
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404
from django.utils import timezone
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.decorators import action
from rest_framework.mixins import ListModelMixin
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import ReadOnlyModelViewSet, ViewSet

from apps.accounts.api import ApiView, ApiViewSet, command
from apps.accounts.models import User
from apps.core.api.conditional import Guarded
from apps.core.domain.quotas import MINUTE, Quota
from apps.core.errors import InvalidFields
from apps.core.models import Event
from apps.core.web.query import number_of
from apps.statusboard.api.serializers import (
    AnnouncementSerializer,
    CancelWindowSerializer,
    CloseIncidentSerializer,
    DivideIncidentSerializer,
    HandOverNoteSerializer,
    HistorySerializer,
    IncidentSerializer,
    NewAnnouncementSerializer,
    NewHandOverNoteSerializer,
    NewIncidentSerializer,
    NewWindowSerializer,
    PinAnnouncementSerializer,
    ReasonSerializer,
    ServiceSerializer,
    UpdateIncidentSerializer,
    WindowSerializer,
)
from apps.statusboard.domain.board.availability import (
    DAYS,
    HOURLY_DAYS,
    availability,
    daily,
    hourly,
)
from apps.statusboard.domain.board.board import BoardRow, board
from apps.statusboard.domain.incidents.corrections import divide_incident
from apps.statusboard.domain.incidents.incidents import (
    close_incident,
    open_incident,
    update_incident,
)
from apps.statusboard.domain.maintenance.announcements import (
    mark_read,
    pin_announcement,
    post_announcement,
    withdraw_announcement,
)
from apps.statusboard.domain.maintenance.hand_over_notes import (
    hand_over_notes,
    write_hand_over_note,
)
from apps.statusboard.domain.maintenance.windows import cancel_window, schedule_window
from apps.statusboard.domain.monitoring.intake import accept_payload
from apps.statusboard.domain.monitoring.source_tokens import TokensUnknown, authenticate_source
from apps.statusboard.filters import IncidentFilter
from apps.statusboard.models import Announcement, DowntimeWindow, Incident, Service
from apps.statusboard.permissions import require_board_role

log = logging.getLogger(__name__)

#: Maximum size of a payload.
LIMIT_BYTES = 512_000
#: Maximum bytes of payloads per source and day, in each process.
LIMIT_BYTES_A_DAY = 5_000_000_000
#: Rate limits per minute: payloads per source in each process, and wrong tokens per address.
LIMIT_A_MINUTE = 120_000
LIMIT_WRONG_A_MINUTE = 30
#: Maximum days of a service's history.
LONGEST_HISTORY = 366


class ServiceViewSet(ApiView, ViewSet):
    """Services and their current states, in tree order."""

    lookup_field = "slug"

    @extend_schema(responses=ServiceSerializer(many=True))
    def list(self, request: Request) -> Response:
        """List services and their current states, in tree order."""
        rows = board(timezone.now(), days=0)
        return Response(ServiceSerializer(rows, many=True, context=_slugs(rows)).data)

    @extend_schema(
        responses=ServiceSerializer,
        parameters=[OpenApiParameter("slug", str, OpenApiParameter.PATH)],
    )
    def retrieve(self, request: Request, slug: str) -> Response:
        """Return a service and its current state."""
        get_object_or_404(Service, slug=slug)
        rows = board(timezone.now(), days=0)
        row = next(row for row in rows if row.service.slug == slug)
        return Response(ServiceSerializer(row, context=_slugs(rows)).data)

    @extend_schema(
        responses=HistorySerializer,
        parameters=[
            OpenApiParameter("slug", str, OpenApiParameter.PATH),
            OpenApiParameter("by", str, enum=["day", "hour"], description="Default: day."),
            OpenApiParameter(
                "days",
                int,
                description=(
                    f"1 to {LONGEST_HISTORY}, by hour to {HOURLY_DAYS}; by default {DAYS} or "
                    f"{HOURLY_DAYS}."
                ),
            ),
        ],
    )
    @action(detail=True, methods=["get"])
    def history(self, request: Request, slug: str) -> Response:
        """Return the states of a service by day or hour."""
        service = get_object_or_404(Service, slug=slug)
        by = request.query_params.get("by", "day")
        if by not in ("day", "hour"):
            raise InvalidFields({"by": ["Enter day or hour."]})
        read, usual, most = (
            (hourly, HOURLY_DAYS, HOURLY_DAYS) if by == "hour" else (daily, DAYS, LONGEST_HISTORY)
        )
        days = number_of(request.query_params.get("days", str(usual)))
        if days is None or not 1 <= days <= most:
            raise InvalidFields({"days": [f"Enter a whole number from 1 to {most}."]})
        slots = read([service], timezone.now(), days=days)[service.pk]
        return Response(
            HistorySerializer({"availability": availability(slots), "slots": slots}).data
        )


def _slugs(rows: list[BoardRow]) -> dict[str, Any]:
    return {"slugs": {row.service.pk: row.service.slug for row in rows}}


def _board(user: User, _: object) -> None:
    require_board_role(user, "do this")


class IncidentViewSet(Guarded, ReadOnlyModelViewSet[Incident], ApiViewSet[Incident]):
    """Incidents, most recently recorded first."""

    queryset = Incident.objects.select_related("service", "source").prefetch_related("changes")
    serializer_class = IncidentSerializer
    filterset_class = IncidentFilter
    orderings = {"started_at": "started_at"}

    @command(NewIncidentSerializer, IncidentSerializer, code=201, allowed=_board)
    def create(self, **fields: Any) -> Incident:
        """Open an incident of a service. For approvers and shifters."""
        return open_incident(**fields)

    @command(UpdateIncidentSerializer, IncidentSerializer, allowed=_board)
    def partial_update(self, incident: Incident, **fields: Any) -> Incident:
        """Change the state, title, text or link of an incident. For approvers and shifters."""
        kept = {name: getattr(incident, name) for name in ("state", "title", "text", "url")}
        return update_incident(incident=incident, **{**kept, **fields})

    @command(CloseIncidentSerializer, IncidentSerializer, allowed=_board)
    def close(self, incident: Incident, **fields: Any) -> Incident:
        """Close an incident: its service works again. For approvers and shifters."""
        return close_incident(incident=incident, **fields)

    @command(DivideIncidentSerializer, IncidentSerializer, allowed=_board)
    def divide(self, incident: Incident, **fields: Any) -> Incident:
        """Divide an incident that is two outages. Returns the second one."""
        return divide_incident(incident=incident, **fields)


class WindowViewSet(Guarded, ReadOnlyModelViewSet[DowntimeWindow], ApiViewSet[DowntimeWindow]):
    """Maintenance windows, most recently scheduled first."""

    noun = "maintenance window"
    queryset = DowntimeWindow.objects.prefetch_related("services")
    serializer_class = WindowSerializer
    orderings = {"starts_at": "starts_at"}

    @command(NewWindowSerializer, WindowSerializer, code=201, allowed=_board)
    def create(self, **fields: Any) -> DowntimeWindow:
        """Schedule maintenance of services. For approvers and shifters."""
        return schedule_window(**fields)

    @command(CancelWindowSerializer, WindowSerializer, allowed=_board)
    def cancel(self, window: DowntimeWindow, **fields: Any) -> DowntimeWindow:
        """Cancel scheduled maintenance. For approvers and shifters."""
        return cancel_window(window=window, **fields)


class AnnouncementViewSet(Guarded, ReadOnlyModelViewSet[Announcement], ApiViewSet[Announcement]):
    """Announcements visible to you, including withdrawn ones, most recently posted first."""

    serializer_class = AnnouncementSerializer
    orderings = {"starts_at": "starts_at"}

    def get_queryset(self) -> QuerySet[Announcement]:
        return Announcement.objects.visible_to(self.request.user).prefetch_related(
            "services", "experiments"
        )

    @command(NewAnnouncementSerializer, AnnouncementSerializer, code=201, allowed=_board)
    def create(self, **fields: Any) -> Announcement:
        """Post an announcement, to all or to some experiments. For approvers and shifters."""
        return post_announcement(**fields)

    @command(PinAnnouncementSerializer, AnnouncementSerializer, allowed=_board)
    def pin(self, announcement: Announcement, **fields: Any) -> Announcement:
        """Pin an announcement to show it first, even to users who have read it; or unpin it."""
        return pin_announcement(announcement=announcement, **fields)

    @command(None, AnnouncementSerializer)
    def read(self, announcement: Announcement, *, by: User, **_: Any) -> Announcement:
        """Mark an announcement as read. Your home page no longer shows it unless it is pinned."""
        return mark_read(announcement=announcement, by=by)

    @command(ReasonSerializer, AnnouncementSerializer, allowed=_board)
    def withdraw(self, announcement: Announcement, **fields: Any) -> Announcement:
        """Withdraw an announcement. It stays in the list of all announcements."""
        return withdraw_announcement(announcement=announcement, **fields)


class HandOverNoteViewSet(ListModelMixin, ApiViewSet[Event]):
    """Hand-over notes of shifters, newest first. For approvers and shifters."""

    noun = "hand-over note"
    queryset = Event.objects.none()
    serializer_class = HandOverNoteSerializer

    def get_queryset(self) -> QuerySet[Event]:
        require_board_role(self.request.user, "read hand-over notes")
        return hand_over_notes()

    @command(NewHandOverNoteSerializer, HandOverNoteSerializer, code=201, allowed=_board)
    def create(self, **fields: Any) -> Event:
        """Leave a note to the next shift. It cannot be changed later."""
        return write_hand_over_note(**fields)


# Requests are authenticated by token, never by a cookie.
@csrf_exempt
@login_not_required
@require_POST
def receive_feed(request: HttpRequest, slug: str) -> HttpResponse:
    """Store a payload of a monitoring source; return 202 once it is on disk, whatever it contains.

    Senders drop a payload on 4xx and retry on 5xx. 4xx is therefore only for a wrong token and for
    a body that is too large. The database is not needed and may be unavailable.
    """
    address = request.META.get("REMOTE_ADDR", "")
    try:
        source_id = authenticate_source(slug=slug, token=_token(request))
    except TokensUnknown:
        return _answer(503, "Cannot check the token. Retry later.", {"Retry-After": "10"})
    if source_id is None:
        if _too_many_wrong(address):
            return _answer(429, "Too many requests with a wrong token.", {"Retry-After": "60"})
        return _answer(401, "Invalid token.", {"WWW-Authenticate": 'Bearer realm="feeds"'})
    if not _PAYLOADS.allows(source_id, len(request.body)):
        return _answer(503, "Too many payloads. Retry later.", {"Retry-After": "30"})
    try:
        accept_payload(source_id=source_id, body=request.body, at=timezone.now())
    except OSError:
        log.exception("cannot store a payload of %s", slug[:64])
        return _answer(503, "Cannot store the payload. Retry later.", {"Retry-After": "10"})
    return _answer(202, "Stored.")


receive_feed.max_body_bytes = LIMIT_BYTES  # type: ignore[attr-defined]


def _answer(status: int, detail: str, headers: dict[str, str] | None = None) -> HttpResponse:
    answer = JsonResponse({"detail": detail}, status=status, headers=headers)
    # Without this header, the connection could not be kept alive.
    answer.headers["Content-Length"] = str(len(answer.content))
    return answer


def _token(request: HttpRequest) -> str:
    """Return the bearer token, or the password of basic authentication."""
    scheme, _, value = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return value.strip()
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(value, validate=True).decode().partition(":")[2]
        except ValueError:
            # The value is not valid base64 or UTF-8.
            return ""
    return ""


class _Count:
    """Amounts by source in the current period of `seconds`."""

    def __init__(self, seconds: int) -> None:
        self._seconds = seconds
        self._period = 0
        self._amounts = Counter[int]()

    def add(self, source_id: int, amount: int) -> int:
        """Add an amount; return the total of the period."""
        period = int(time.monotonic()) // self._seconds
        if period != self._period:
            self._period = period
            self._amounts = Counter()
        self._amounts[source_id] += amount
        return self._amounts[source_id]


class _Payloads:
    """Counts the payloads of each source in this process.

    A shared counter would cost more than accepting the payloads.
    """

    def __init__(self) -> None:
        self._a_minute = _Count(60)
        self._bytes_a_day = _Count(86_400)

    def allows(self, source_id: int, size: int) -> bool:
        """Count a payload of this size; return whether the source may send it now."""
        if self._a_minute.add(source_id, 1) > LIMIT_A_MINUTE:
            return False
        return self._bytes_a_day.add(source_id, size) <= LIMIT_BYTES_A_DAY


_PAYLOADS = _Payloads()


def _too_many_wrong(address: str) -> bool:
    """Count a wrong token; return whether this address has sent too many in this minute."""
    quota = Quota("feed-wrong", LIMIT_WRONG_A_MINUTE, MINUTE)
    return quota.add(address, 1, at=timezone.now()) > quota.most
