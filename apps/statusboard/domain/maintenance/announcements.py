"""Announcements: post, withdraw and list them."""

from collections.abc import Collection
from datetime import datetime

from django.db import transaction
from django.db.models import Count, Exists, OuterRef, Q, QuerySet

from apps.accounts.models import Experiment, Principal, User
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
    pinned: bool = False,
) -> Announcement:
    """Post an announcement to everyone or to some experiments, from now or from `starts_at` on.

    Raises `NotAllowed`, `InvalidFields`.
    """
    require_board_role(by, "manage announcements")
    if ends_at is not None and ends_at <= (starts_at or at):
        raise InvalidFields({"ends_at": ["End must be after start."]})
    announcement = Announcement(
        title=title,
        body=body,
        starts_at=starts_at or at,
        ends_at=ends_at,
        do_not_submit=do_not_submit,
        pinned=pinned,
        posted_by=by.username,
    )
    _post(announcement, by=by, at=at, experiments=experiments, services=services)
    return announcement


@transaction.atomic
def post_announcement_as_portal(
    *, title: str, body: str, by: str, at: datetime, ends_at: datetime
) -> Announcement:
    """Post an announcement to everyone until `ends_at`, for `by`, a component of the portal."""
    announcement = Announcement(title=title, body=body, starts_at=at, ends_at=ends_at, posted_by=by)
    _post(announcement, by=by, at=at)
    return announcement


def _post(
    announcement: Announcement,
    *,
    by: Principal,
    at: datetime,
    experiments: Collection[Experiment] = (),
    services: Collection[Service] = (),
) -> None:
    announcement.save(force_insert=True)
    announcement.experiments.set(experiments)
    announcement.services.set(services)
    publish(
        kind="announcement.posted",
        target=announcement,
        by=by,
        at=at,
        data={
            "experiments": sorted(experiment.key for experiment in experiments),
            "do_not_submit": announcement.do_not_submit,
        },
    )


@transaction.atomic
def withdraw_announcement(
    *, announcement: Announcement, by: User, at: datetime, reason: str
) -> Announcement:
    """Withdraw an announcement.

    Raises `NotAllowed`, and `StaleState` if it is already withdrawn.
    """
    require_board_role(by, "manage announcements")
    if not Announcement.objects.filter(pk=announcement.pk, withdrawn_at=None).update(
        withdrawn_at=at
    ):
        raise StaleState(f"“{announcement}” is already withdrawn.")
    announcement.withdrawn_at = at
    publish(kind="announcement.withdrawn", target=announcement, by=by, at=at, reason=reason)
    return announcement


@transaction.atomic
def pin_announcement(
    *, announcement: Announcement, by: User, at: datetime, pinned: bool
) -> Announcement:
    """Pin or unpin an announcement; pinned ones come first and are shown even if read.

    Raises `NotAllowed`, `StaleState`.
    """
    require_board_role(by, "manage announcements")
    changed = Announcement.objects.filter(pk=announcement.pk, withdrawn_at=None).exclude(
        pinned=pinned
    )
    if not changed.update(pinned=pinned):
        raise StaleState(
            f"“{announcement}” is already {'pinned' if pinned else 'not pinned'}, or withdrawn."
        )
    announcement.pinned = pinned
    kind = "announcement.pinned" if pinned else "announcement.unpinned"
    publish(kind=kind, target=announcement, by=by, at=at)
    return announcement


def mark_read(*, announcement: Announcement, by: User) -> Announcement:
    """Record that a user has read an announcement. Repeating the call changes nothing."""
    announcement.read_by.add(by)
    return announcement


def unread_announcements(user: User, at: datetime) -> QuerySet[Announcement]:
    """Return the announcements shown to the user now: pinned or unread ones, newest first."""
    read = Announcement.read_by.through.objects.filter(announcement=OuterRef("pk"), user=user)
    shown = Announcement.objects.visible_to(user).current(at).filter(Q(pinned=True) | ~Exists(read))
    return shown.annotate(is_read=Exists(read)).prefetch_related("experiments", "services")


def public_announcements(at: datetime) -> QuerySet[Announcement]:
    """Return the announcements for everyone that are shown now, newest first."""
    return Announcement.objects.filter(experiments=None).current(at).prefetch_related("services")


def announcements_ahead(user: User, at: datetime) -> QuerySet[Announcement]:
    """Return announcements shown to the user now or later, with the number of their `readers`."""
    coming = Announcement.objects.visible_to(user).coming(at)
    counted = coming.annotate(readers=Count("read_by")).order_by("-pinned", "-starts_at", "-pk")
    return counted.prefetch_related("experiments", "services")
