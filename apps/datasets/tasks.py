"""Celery tasks of catalogues. Each may be lost, killed or run twice."""

from collections.abc import Callable
from datetime import datetime
from typing import Protocol

from celery import shared_task
from django.utils import timezone

from apps.core.domain.locks import exclusive_lock
from apps.datasets.domain.catalogue_queue import catalogues_to_ask_about
from apps.datasets.domain.look_ups import ASKING_LOCK, LOOK_UPS, ask_catalogue, forget_datasets
from apps.datasets.domain.making import MAKING_LOCK, MAKINGS, make_datasets
from apps.datasets.domain.staging import (
    STAGING_LOCK,
    STAGINGS,
    close_overdue,
    follow_stagings,
)
from apps.datasets.models import Catalogue


class AsksCatalogue(Protocol):
    """Asks a catalogue about what waits for it."""

    def __call__(self, catalogue: Catalogue, *, now: Callable[[], datetime]) -> object: ...


def _alone(lock: int, catalogue_id: int, ask: AsksCatalogue) -> None:
    """Ask an active catalogue unless another worker does.

    It does not wait for the lock: a catalogue that hangs must not block more than one worker.
    """
    catalogue = Catalogue.objects.filter(pk=catalogue_id, active=True).first()
    if catalogue is None:
        return
    with exclusive_lock(lock, catalogue.pk) as is_ours:
        if is_ours:
            ask(catalogue, now=timezone.now)


@shared_task(name="datasets.look_up")
def look_up() -> None:
    """Start a task for every catalogue that has datasets to look up."""
    for pk in catalogues_to_ask_about(LOOK_UPS, timezone.now()).values_list("pk", flat=True):
        look_up_in.delay(catalogue_id=pk)


@shared_task(name="datasets.look_up_in")
def look_up_in(*, catalogue_id: int) -> None:
    """Ask a catalogue for the datasets that wait."""
    _alone(ASKING_LOCK, catalogue_id, ask_catalogue)


@shared_task(name="datasets.forget_unneeded")
def forget_unneeded() -> None:
    """Delete the answers that were not read for a long time."""
    forget_datasets(at=timezone.now())


@shared_task(name="datasets.stage")
def stage() -> None:
    """Start a task for every catalogue with datasets to bring to disk, and end overdue waits."""
    close_overdue(at=timezone.now())
    for pk in catalogues_to_ask_about(STAGINGS, timezone.now()).values_list("pk", flat=True):
        stage_in.delay(catalogue_id=pk)


@shared_task(name="datasets.stage_in")
def stage_in(*, catalogue_id: int) -> None:
    """Request datasets of a catalogue on disk, and ask how far they are."""
    _alone(STAGING_LOCK, catalogue_id, follow_stagings)


@shared_task(name="datasets.make")
def make() -> None:
    """Start a task for every catalogue with datasets to make."""
    for pk in catalogues_to_ask_about(MAKINGS, timezone.now()).values_list("pk", flat=True):
        make_in.delay(catalogue_id=pk)


@shared_task(name="datasets.make_in")
def make_in(*, catalogue_id: int) -> None:
    """Make the datasets that wait in a catalogue."""
    _alone(MAKING_LOCK, catalogue_id, make_datasets)
