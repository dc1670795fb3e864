"""Update failure groups after each recount: status, jumps, profiles, broken hosts, bad releases."""

from contextlib import suppress
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Max, Min, Q, Sum

from apps.core.domain.events import publish
from apps.core.domain.workflow import move
from apps.core.errors import StaleState
from apps.diagnosis.domain.causes.totals import Recount
from apps.diagnosis.domain.groups.blame import (
    group_failures_of_bad_releases,
    group_failures_of_broken_hosts,
)
from apps.diagnosis.domain.groups.profile import store_due_profiles
from apps.diagnosis.domain.groups.triage import end_mute
from apps.diagnosis.enums import CLOSED, GROUP_MOVES, GroupStatus
from apps.diagnosis.models import CauseTotals, DailyCauseTotals, FailureGroup, Verdict
from apps.jobs.domain.records.conversion import hour_of

#: A jump: minimum number of failures in one hour, and its ratio to the hourly mean of the day
#: before; jumps of a group are published at most once per pause.
JUMP_JOBS = 20
JUMP_FACTOR = 5
JUMP_PAUSE = timedelta(hours=6)
#: Hosts and releases are blamed for failures up to this old, since logs may be analysed late.
BLAMED_WITHIN = timedelta(days=7)


def sweep_groups(recount: Recount, *, at: datetime) -> None:
    """Update the recounted groups, and find broken hosts and bad releases in these hours.

    Mutes that have expired end, with or without new failures.
    """
    _end_expired_mutes(at)
    for group in FailureGroup.objects.filter(pk__in=recount.group_ids).order_by("pk"):
        _note_seen(group)
        _reopen(group, at)
        _note_jump(group, at)
    ends = {min(at, hour + timedelta(hours=1)) for hour in recount.hours}
    for moment in sorted(end for end in ends if end > at - BLAMED_WITHIN):
        group_failures_of_broken_hosts(at=moment)
        group_failures_of_bad_releases(at=moment)
    store_due_profiles(at=at)


def _note_seen(group: FailureGroup) -> None:
    totals = DailyCauseTotals.objects.filter(group=group)
    seen = totals.aggregate(first=Min("first_ended_at"), last=Max("last_ended_at"))
    if seen["first"] and (seen["first"], seen["last"]) != (group.first_seen_at, group.last_seen_at):
        group.first_seen_at = seen["first"]
        group.last_seen_at = seen["last"]
        group.save(update_fields=["first_seen_at", "last_seen_at"])


def _end_expired_mutes(at: datetime) -> None:
    for group in FailureGroup.objects.filter(
        status=GroupStatus.MUTED, muted_until__lte=at
    ).order_by("pk"):
        with suppress(StaleState):  # a user has just unmuted the group
            end_mute(group=group, by="diagnosis", at=at, reason="Mute expired.")


def _reopen(group: FailureGroup, at: datetime) -> None:
    """Reopen a closed group if a job failed that started after the group was closed."""
    again = Verdict.objects.filter(group=group, job__started_at__gt=group.status_at)
    if group.status in CLOSED and again.exists():
        with transaction.atomic():
            old = move(
                group,
                to=GroupStatus.REGRESSED,
                transitions=GROUP_MOVES,
                field="status",
                status_at=at,
            )
            publish(
                kind="group.regressed",
                target=group,
                by="diagnosis",
                at=at,
                old=old,
                new=group.status,
            )


def _note_jump(group: FailureGroup, at: datetime) -> None:
    hour = hour_of(at)
    totals = CauseTotals.objects.filter(group=group, hour__lte=hour).aggregate(
        now=Sum("jobs", filter=Q(hour=hour)),
        before=Sum("jobs", filter=Q(hour__gte=hour - timedelta(hours=24), hour__lt=hour)),
    )
    jobs = totals["now"] or 0
    mean = (totals["before"] or 0) / 24
    is_muted = group.status == GroupStatus.MUTED or (
        group.jumped_at and group.jumped_at > at - JUMP_PAUSE
    )
    if jobs >= JUMP_JOBS and jobs >= JUMP_FACTOR * mean and not is_muted:
        with transaction.atomic():
            FailureGroup.objects.filter(pk=group.pk).update(jumped_at=at)
            publish(kind="group.jumped", target=group, by="diagnosis", at=at, data={"jobs": jobs})
