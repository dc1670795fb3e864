"""The page of a service: its state and history, related services, and dependent requests."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo

from django.db.models import Count, QuerySet

from apps.accounts.models import User
from apps.clusters.models import Cluster
from apps.production.enums import CLOSED
from apps.production.models import Request, Stage
from apps.statusboard.domain.board.availability import (
    DAYS,
    Availability,
    AvailabilitySlot,
    read_hourly_slots,
    sum_availability,
)
from apps.statusboard.domain.board.board import BoardRow, board_row, state_history
from apps.statusboard.domain.maintenance.windows import windows_of
from apps.statusboard.models import DowntimeWindow, Service, StateInterval
from apps.statusboard.permissions import may_run_board


@dataclass(frozen=True)
class ServiceUse:
    """The open requests of an experiment with stages of a kind that need a service."""

    experiment: str
    experiment_name: str
    kind: str
    requests: int


@dataclass(frozen=True)
class ServicePage:
    """What the page of a service shows beside its incidents, by its names in the template."""

    at: datetime
    service: Service
    row: BoardRow
    hours: Sequence[AvailabilitySlot]
    availability: list[tuple[str, Availability]]
    spans: list[StateInterval]
    windows: QuerySet[DowntimeWindow]
    parts: QuerySet[Service]
    needs: QuerySet[Service]
    needed_by: QuerySet[Service]
    stages: Sequence[ServiceUse]
    clusters: QuerySet[Cluster]
    may_run_board: bool


def service_page(*, service: Service, user: User, at: datetime, zone: tzinfo) -> ServicePage:
    """Return what the page of a service shows to a user, without its incidents."""
    row = board_row(service, at, zone=zone)
    hours = read_hourly_slots([service], at, zone=zone)[service.pk]
    return ServicePage(
        at=at,
        service=service,
        row=row,
        hours=hours,
        availability=[
            ("Last 7 days", sum_availability(hours)),
            (f"Last {DAYS} days", row.availability),
        ],
        spans=state_history(service, at - timedelta(days=DAYS), at)[:100],
        windows=windows_of(service)[:20],
        parts=service.children.all(),
        needs=service.depends_on.all(),
        needed_by=service.needed_by.all(),
        stages=needs_of_requests(service, user),
        clusters=Cluster.objects.filter(service=service),
        may_run_board=may_run_board(user),
    )


def needs_of_requests(service: Service, user: User) -> Sequence[ServiceUse]:
    """Return the needs for a service in open requests that the user may see, largest first."""
    requests = Request.objects.visible_to(user).exclude(state__in=CLOSED)
    stages = Stage.objects.filter(services=service, request__in=requests)
    rows = stages.values_list(
        "request__experiment__key", "request__experiment__name", "kind"
    ).annotate(request_count=Count("request", distinct=True))
    return [
        ServiceUse(*row)
        for row in rows.order_by("-request_count", "request__experiment__key", "kind")[:50]
    ]
