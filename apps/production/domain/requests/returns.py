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

    Examples: `Deadline: too late`, `Stage 2 memory: …`, `simulation memory: …`, `stages.1.jobs: …`.
    """
    paths: dict[str, set[str]] = {}
    for path, label in fields_of(request):
        for name in _names_of(path, label):
            paths.setdefault(name.casefold(), set()).add(path)

    notes = []
    for line in text.splitlines():
        head, _, note = line.partition(": ")
        named = paths.get(head.strip(" -*•").casefold(), set())
        # A name that several stages share says nothing.
        if len(named) == 1 and note.strip():
            [path] = named
            notes.append((path, note.strip()))
    return notes


def _names_of(path: str, label: str) -> list[str]:
    """Return how notes may name a field: as its path, as in the form, or as on the desk."""
    names = [path, label, name_in_notes(label)]
    stage, _, title = label.rpartition(" › ")
    own_name = " ".join(stage.split()[2:])
    if own_name:
        names += [f"{own_name} {title}", f"{own_name} › {title}"]
    return names
