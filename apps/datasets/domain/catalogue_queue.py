"""Ask a catalogue about rows of a queue, one after the other."""

from collections.abc import Callable
from datetime import datetime
from typing import TypeVar

from django.db.models import QuerySet

from apps.core.domain.work import Queue
from apps.datasets.catalogues import base
from apps.datasets.models import Catalogue, KnownDataset, MadeDataset, StagingRequest

W = TypeVar("W", KnownDataset, StagingRequest, MadeDataset)


def catalogues_to_ask_about(queue: Queue[W], at: datetime) -> QuerySet[Catalogue]:
    """Return the active catalogues about which rows of a queue wait now."""
    waiting = queue.due(at).order_by().values("catalogue")
    return Catalogue.objects.filter(active=True, pk__in=waiting)


def ask_in_turn(
    queue: Queue[W],
    catalogue: Catalogue,
    *,
    most: int,
    ask: Callable[[W], None],
    refuse: Callable[[W, str, datetime], None],
    now: Callable[[], datetime],
) -> int:
    """Ask for up to `most` rows of a catalogue that are due; return how many got an answer.

    `ask` raises `CatalogueError`. Ends with the first question that the catalogue does not answer:
    the next run continues. Two workers must not do this for a catalogue at once.
    """
    answered = 0
    for _ in range(most):
        claimed = queue.claim(queue.due(now()).filter(catalogue=catalogue)[:1], at=now())
        if not claimed:
            break
        [waiting] = claimed
        try:
            ask(waiting)
        except base.Refused as error:
            refuse(waiting, error_text(error), now())
        except base.CatalogueError as error:
            queue.fail(waiting, error_text(error), at=now())
            break
        answered += 1
    return answered


def error_text(error: base.CatalogueError) -> str:
    """Return the text of an error, as rows store it."""
    return str(error).replace("\0", "")[:2000]
