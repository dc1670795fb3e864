"""Texts that users add to an incident: acknowledgement, updates, log excerpts, post-mortem."""

from datetime import datetime

from django.db import transaction

from apps.accounts.models import User
from apps.core.domain.events import publish
from apps.core.errors import InvalidFields, StaleState
from apps.statusboard.domain.incidents.incidents import open_or_refuse
from apps.statusboard.enums import NoteKind
from apps.statusboard.models import Incident, IncidentNote
from apps.statusboard.permissions import require_board_role

#: Maximum characters of a log.
MOST_LOG = 100_000


@transaction.atomic
def acknowledge_incident(*, incident: Incident, by: User, at: datetime) -> Incident:
    """Record that the user works on an open incident.

    Raises `NotAllowed`, and `StaleState` if it is closed or already acknowledged.
    """
    require_board_role(by, "manage incidents")
    locked = open_or_refuse(incident)
    if locked.acknowledged_at:
        raise StaleState(f"“{locked}” was already acknowledged by {locked.acknowledged_by}.")
    locked.acknowledged_at = at
    locked.acknowledged_by = by.username
    locked.save(update_fields=["acknowledged_at", "acknowledged_by"])
    publish(kind="incident.acknowledged", target=locked, by=by, at=at)
    return locked


@transaction.atomic
def post_update(*, incident: Incident, text: str, by: User, at: datetime) -> IncidentNote:
    """Post an update for users; a closed incident may have updates too.

    Raises `NotAllowed`, `InvalidFields`.
    """
    return _add(incident, NoteKind.UPDATE, text, by, at, kind="incident.update_posted")


@transaction.atomic
def add_log(
    *, incident: Incident, text: str, by: User, at: datetime, origin: str = ""
) -> IncidentNote:
    """Add lines of the service's log. Raises `NotAllowed`, `InvalidFields`."""
    return _add(incident, NoteKind.LOG, text, by, at, kind="incident.log_added", origin=origin)


def _add(
    incident: Incident,
    note: NoteKind,
    text: str,
    by: User,
    at: datetime,
    *,
    kind: str,
    origin: str = "",
) -> IncidentNote:
    require_board_role(by, "manage incidents")
    if not text.strip():
        raise InvalidFields({"text": ["Enter a text."]})
    if len(text) > MOST_LOG:
        raise InvalidFields({"text": [f"Text is too long. Keep at most {MOST_LOG:,} characters."]})
    incident_note = IncidentNote.objects.create(
        incident=incident,
        kind=note,
        at=at,
        by=by.username,
        text=text.replace("\0", ""),
        origin=origin,
    )
    publish(
        kind=kind,
        target=incident,
        by=by,
        at=at,
        reason=text[:500] if note == NoteKind.UPDATE else "",
    )
    return incident_note


@transaction.atomic
def write_post_mortem(*, incident: Incident, text: str, by: User, at: datetime) -> Incident:
    """Write the post-mortem, replacing the previous text. Raises `NotAllowed`."""
    require_board_role(by, "manage incidents")
    locked = Incident.objects.select_for_update(of=("self",)).get(pk=incident.pk)
    old = locked.post_mortem
    locked.post_mortem = text.strip().replace("\0", "")
    locked.save(update_fields=["post_mortem"])
    publish(
        kind="incident.post_mortem_written", target=locked, by=by, at=at, data={"previous": old}
    )
    return locked
