"""Correct what monitoring reported: times, a premature end, and incidents to merge or divide."""

from datetime import datetime

from django.db import transaction

from apps.accounts.models import User
from apps.core.domain.events import publish
from apps.core.errors import InvalidFields, StaleState
from apps.statusboard.domain.incidents.incidents import set_latest_state
from apps.statusboard.domain.states.history import rebuild
from apps.statusboard.enums import Resolution
from apps.statusboard.models import Incident
from apps.statusboard.permissions import require_board_role


@transaction.atomic
def correct_times(
    *,
    incident: Incident,
    started_at: datetime,
    by: User,
    at: datetime,
    reason: str,
    ended_at: datetime | None = None,
) -> Incident:
    """Correct the start of an incident and, if it is closed, its end; jobs are evaluated again.

    The end then counts as set manually: later messages of the source do not change it. Raises
    `NotAllowed`, `InvalidFields`.
    """
    locked = _locked(incident, by)
    problems: dict[str, list[str]] = {}
    if started_at > at:
        problems["started_at"] = ["Start is in the future."]
    if ended_at is None and not locked.is_open:
        problems["ended_at"] = ["Enter the end, or reopen the incident."]
    if ended_at is not None and locked.is_open:
        problems["ended_at"] = ["The incident is open. Close it instead."]
    if ended_at is not None and ended_at > at:
        problems["ended_at"] = ["End is in the future."]
    if ended_at is not None and ended_at < started_at:
        problems["ended_at"] = ["End is before the start."]
    if not reason.strip():
        problems["reason"] = ["Enter how you know."]
    if problems:
        raise InvalidFields(problems)
    since = min(locked.started_at, started_at)
    old = {
        "started_at": locked.started_at.isoformat(),
        "ended_at": locked.ended_at.isoformat() if locked.ended_at else "",
    }
    if ended_at != locked.ended_at:
        locked.ended_at = ended_at
        locked.closed_by = by.username
        locked.resolution = Resolution.MANUAL
    locked.started_at = started_at
    if locked.stale_at is not None and not locked.is_open and locked.stale_at >= (ended_at or at):
        locked.stale_at = None
    set_latest_state(locked)
    locked.save()
    publish(kind="incident.corrected", target=locked, by=by, at=at, reason=reason, data=old)
    rebuild(service_ids=[locked.service_id], since=since)
    return locked


@transaction.atomic
def reopen_incident(*, incident: Incident, by: User, at: datetime, reason: str) -> Incident:
    """Reopen a closed incident as if it had not ended.

    Raises `NotAllowed`, `StaleState`, `InvalidFields`.
    """
    locked = _locked(incident, by)
    if locked.is_open:
        raise StaleState(f"“{locked}” is open.")
    if not reason.strip():
        raise InvalidFields({"reason": ["Enter why it is not over."]})
    ended_at = locked.ended_at
    locked.ended_at = None
    locked.closed_by = ""
    locked.resolution = ""
    locked.lease_expires_at = locked.stale_at = None
    set_latest_state(locked)
    locked.save()
    data = {"ended_at": ended_at.isoformat() if ended_at else ""}
    publish(kind="incident.reopened", target=locked, by=by, at=at, reason=reason, data=data)
    rebuild(service_ids=[locked.service_id], since=locked.started_at)
    return locked


@transaction.atomic
def merge_incident(*, incident: Incident, into: Incident, by: User, at: datetime) -> Incident:
    """Merge an incident, and those merged into it, into another incident of the same service.

    Raises `NotAllowed`, `InvalidFields`.
    """
    locked = _locked(incident, by)
    root = Incident.objects.select_for_update(of=("self",)).get(pk=into.pk)
    if root.pk == locked.pk or root.merged_into_id or root.service_id != locked.service_id:
        raise InvalidFields({"into": ["Choose another incident of the same service."]})
    Incident.objects.filter(merged_into=locked).update(merged_into=root)
    locked.merged_into = root
    locked.save(update_fields=["merged_into"])
    publish(
        kind="incident.merged",
        target=locked,
        by=by,
        at=at,
        new=f"incident {root.pk}",
        data={"into": root.pk},
    )
    return root


@transaction.atomic
def split_incident(*, incident: Incident, by: User, at: datetime) -> Incident:
    """Split a merged incident from the incident it was merged into.

    Raises `NotAllowed`, `StaleState`.
    """
    locked = _locked(incident, by)
    root = locked.merged_into_id
    if root is None:
        raise StaleState(f"“{locked}” is not merged into another incident.")
    locked.merged_into = None
    locked.save(update_fields=["merged_into"])
    publish(
        kind="incident.split",
        target=locked,
        by=by,
        at=at,
        old=f"incident {root}",
        data={"from": root},
    )
    return locked


@transaction.atomic
def divide_incident(
    *,
    incident: Incident,
    ended_at: datetime,
    by: User,
    at: datetime,
    reason: str,
    resumed_at: datetime | None = None,
) -> Incident:
    """Divide an incident that is two outages, and return the second one.

    The first ended at `ended_at`; the second started at `resumed_at`, by default at the same time.
    Jobs are evaluated again. The second incident continues the source's episode: later reports of
    the source belong to it, as do updates and alerts since its start. Merging the two incidents
    undoes the division. Raises `NotAllowed`, `InvalidFields`, and `StaleState` for a merged
    incident.
    """
    locked = _locked(incident, by)
    if locked.merged_into_id:
        raise StaleState(f"“{locked}” is merged into another incident. Split it from that first.")
    since = resumed_at or ended_at
    problems = _problems_of_division(locked, ended_at, since, at)
    if not reason.strip():
        problems["reason"] = ["Enter how you know."]
    if problems:
        raise InvalidFields(problems)

    second = _second_part(locked, since)
    locked.dedup_key = f"{locked.dedup_key[:150]} until {ended_at.isoformat()}"
    locked.ended_at = ended_at
    locked.closed_by = by.username
    locked.resolution = Resolution.MANUAL
    locked.lease_expires_at = None
    if locked.stale_at and locked.stale_at >= ended_at:
        locked.stale_at = None
    # Save this part first: the second one takes over its key.
    locked.save()
    second.save()
    _divide_changes(locked, second, ended_at)
    locked.notes.filter(at__gte=since).update(incident=second)
    Incident.objects.filter(merged_into=locked, started_at__gte=since).update(merged_into=second)
    for part in (locked, second):
        set_latest_state(part)
        part.save(update_fields=["state"])

    publish(
        kind="incident.divided",
        target=locked,
        by=by,
        at=at,
        new=f"incident {second.pk}",
        reason=reason,
        data={
            "into": second.pk,
            "ended_at": ended_at.isoformat(),
            "resumed_at": since.isoformat(),
        },
    )
    publish(
        kind="incident.split",
        target=second,
        by=by,
        at=at,
        old=f"incident {locked.pk}",
        reason=reason,
        data={"from": locked.pk},
    )
    rebuild(service_ids=[locked.service_id], since=locked.started_at)
    return second


def _problems_of_division(
    incident: Incident, ended_at: datetime, since: datetime, at: datetime
) -> dict[str, list[str]]:
    """Return why an incident cannot be divided at these times, by field; locks what is merged.

    The first part ends at `ended_at`, and the second one starts at `since`.
    """
    end = incident.ended_at or at
    if not incident.started_at < ended_at < end:
        return {"ended_at": ["Choose a time between start and end of the incident."]}

    merged = Incident.objects.select_for_update(of=("self",)).filter(merged_into=incident)
    for alert in merged:
        lasted_on = alert.ended_at is None or alert.ended_at > ended_at
        if alert.started_at < since and lasted_on:
            text = f"“{alert}” was reported then too. Split it from the incident first."
            return {"ended_at": [text]}
    if not ended_at <= since < end:
        text = "Choose a time after the end of the first outage, before that of the incident."
        return {"resumed_at": [text]}
    return {}


def _divide_changes(first: Incident, second: Incident, ended_at: datetime) -> None:
    """Give each part its changes of state, and its state at the start."""
    changes = list(first.changes.all())
    since = second.started_at
    state = next(
        (change.state for change in reversed(changes) if change.at <= since), changes[0].state
    )
    first.changes.filter(at__gt=since).update(incident=second)
    first.changes.filter(at__gte=ended_at).delete()
    second.changes.create(at=since, state=state)
    if not first.changes.exists():
        first.changes.create(at=first.started_at, state=changes[0].state)


def _second_part(incident: Incident, since: datetime) -> Incident:
    """Return an unsaved copy of an incident that starts at `since`."""
    second = Incident.objects.get(pk=incident.pk)
    second.pk = None
    second._state.adding = True
    second.started_at = since
    second.post_mortem = ""
    if second.stale_at is not None:
        second.stale_at = max(second.stale_at, since)
    return second


def _locked(incident: Incident, by: User) -> Incident:
    require_board_role(by, "manage incidents")
    return (
        Incident.objects.select_for_update(of=("self",))
        .select_related("service")
        .get(pk=incident.pk)
    )
