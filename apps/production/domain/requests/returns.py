"""The last return of a request to its requesters, and the notes on fields in its reason."""

from apps.core.domain.events import events_of
from apps.core.models import Event
from apps.production.domain.discussion import fields_of
from apps.production.enums import Verb
from apps.production.events import kind_of_move
from apps.production.models import Request


def last_return(request: Request) -> Event | None:
    """Return the event that last returned the request to its requester, with the reason."""
    kinds = [kind_of_move(Verb.REQUEST_CHANGES), kind_of_move(Verb.RETURN)]
    return events_of(request).filter(kind__in=kinds).last()


def name_in_notes(label: str) -> str:
    """Return how a note names the field with this label: `Stage 2 Memory`, `Deadline`."""
    stage, _, title = label.rpartition(" › ")
    return " ".join([*stage.split()[:2], title])


def notes_on_fields(request: Request, text: str) -> list[tuple[str, str]]:
    """Return path and note of each line that names a field.

    Examples: `Deadline: too late`, `Stage 2 memory: …`, `stages.1.jobs: …`.
    """
    names: dict[str, str] = {}
    for path, label in fields_of(request):
        names |= {path: path, name_in_notes(label).lower(): path}

    notes = []
    for line in text.splitlines():
        head, _, note = line.partition(": ")
        field = names.get(head.strip().lower())
        if field and note.strip():
            notes.append((field, note.strip()))
    return notes
