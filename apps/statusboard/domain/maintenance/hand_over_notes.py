"""Hand-over notes: what a shifter leaves to the next shift.

A note is an event, which nobody can change later: its author, time and text are in the audit trail.
"""

from datetime import datetime

from django.db import transaction
from django.db.models import QuerySet

from apps.accounts.models import User
from apps.core.domain.events import publish
from apps.core.errors import InvalidFields
from apps.core.models import Event
from apps.statusboard.permissions import require_board_role

KIND = "shift.handed_over"
LONGEST_NOTE = 5000


@transaction.atomic
def write_hand_over_note(*, text: str, by: User, at: datetime) -> Event:
    """Leave a note to the next shift, and return it.

    Raises `NotAllowed`, and `InvalidFields` for an empty note or one that is too long.
    """
    require_board_role(by, "write hand-over notes")
    note = text.strip()
    if not note:
        raise InvalidFields({"text": ["Enter what the next shift has to know."]})
    if len(note) > LONGEST_NOTE:
        raise InvalidFields({"text": [f"Enter at most {LONGEST_NOTE:,} characters."]})
    return publish(kind="shift.handed_over", target=by, by=by, at=at, reason=note)


def hand_over_notes() -> QuerySet[Event]:
    """Return the notes, newest first: `actor`, `at`, and `reason`, which is the text.

    Only the OPG may see them.
    """
    return Event.objects.filter(kind=KIND).order_by("-id")
