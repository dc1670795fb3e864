"""Announcements: post, withdraw and list them."""

from collections.abc import Collection
from datetime import datetime

from django.db import transaction
from django.db.models import QuerySet

from apps.accounts.models import Experiment, User
from apps.core.domain.events import publish
from apps.core.errors import InvalidFields, StaleState
from apps.statusboard.models import Announcement, Service
from apps.statusboard.permissions import require_board_role


@transaction.atomic
def post_announcement(
    *,
    title: str,
    by: User,
    at: datetime,
    body: str = "",
    starts_at: datetime | None = None,
    ends_at: datetime | None = None,
    experiments: Collection[Experiment] = (),
    services: Collection[Service] = (),
    do_not_submit: bool = False,
) -> Announcement:
    """Post an announcement to everybody or to some experiments, from now or `starts_at` on.

    Raises `NotAllowed`, `InvalidFields`.
    """
    require_board_role(by, "manage announcements")
    if ends_at is not None and ends_at <= (starts_at or at):
        raise InvalidFields({"ends_at": ["End must be after start."]})
    announcement = Announcement.objects.create(
        title=title,
        body=body,
        starts_at=starts_at or at,
        ends_at=ends_at,
        do_not_submit=do_not_submit,
        posted_by=by.username,
    )
    announcement.experiments.set(experiments)
    announcement.services.set(services)
    publish(
        kind="announcement.posted",
        target=announcement,
        by=by,
        at=at,
        data={"experiments": sorted(e.key for e in experiments), "do_not_submit": do_not_submit},
    )
    return announcement


@transaction.atomic
def withdraw_announcement(*, announcement: Announcement, by: User, at: datetime, reason: str) -> Announcement:
    """Withdraw an announcement. Raises `NotAllowed`, and `StaleState` if it is already withdrawn."""
    require_board_role(by, "manage announcements")
    if not Announcement.objects.filter(pk=announcement.pk, withdrawn_at=None).update(withdrawn_at=at):
        raise StaleState(f"“{announcement}” is already withdrawn.")
    announcement.withdrawn_at = at
    publish(kind="announcement.withdrawn", target=announcement, by=by, at=at, reason=reason)
    return announcement


def announcements_for(user: User, at: datetime) -> QuerySet[Announcement]:
    """Return the announcements shown to the user now, newest first."""
    return Announcement.objects.visible_to(user).current(at).prefetch_related("experiments", "services")


def announcements_ahead(user: User, at: datetime) -> QuerySet[Announcement]:
    """Return the announcements shown to the user now or later, newest first."""
    return Announcement.objects.visible_to(user).coming(at).prefetch_related("experiments", "services")
