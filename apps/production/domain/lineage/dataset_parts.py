"""Datasets of the parts of a split request, which the portal defines in some catalogues."""

import logging
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction

from apps.core.domain.background import enqueue
from apps.core.domain.events import publish
from apps.production.domain.content.stages import content_of
from apps.production.domain.lineage.splits import Split, list_outside_inputs
from apps.production.domain.outputs.datasets import (
    CatalogueError,
    ListsFiles,
    defining_catalogue,
    may_define,
)
from apps.production.enums import CLOSED, PORTAL, RequestState
from apps.production.models import DatasetPart, Request

log = logging.getLogger(__name__)

#: Recoveries in these states process no files.
GIVEN_BACK = (RequestState.REJECTED, RequestState.CANCELLED)
#: The time until a retry after a catalogue error.
_RETRY_AFTER = timedelta(minutes=5)


def order_parts(
    *, whole: Request, parts: Sequence[Request], planned: Split, at: datetime
) -> list[DatasetPart]:
    """Record the parts of datasets to define, in the caller's transaction, and enqueue the task."""
    inputs = list(list_outside_inputs(content_of(whole)))
    ends = planned.cut.ends
    rows = []
    for index, part in enumerate(parts):
        for position, name in inputs:
            dataset_part = DatasetPart(
                request=part,
                split_from=whole,
                name=planned.parts[index].content.stages[position - 1].input_dataset,
                whole=name,
                first=ends[index - 1] if index else 0,
                last=ends[index],
                total=planned.cut.total,
                due_at=at,
            )
            rows.append(dataset_part)

    # Two stages may read the same dataset.
    unique_rows = {
        (dataset_part.request_id, dataset_part.name): dataset_part for dataset_part in rows
    }
    if unique_rows:
        DatasetPart.objects.bulk_create(unique_rows.values())
        enqueue("production.define_waiting")
    return list(unique_rows.values())


def order_recovery(
    *, request: Request, whole: Request, name: str, dataset: str, files: Sequence[str], at: datetime
) -> None:
    """Record the dataset of files that a recovery reads, in the caller's transaction.

    It is defined in the catalogue where the portal can do that.
    """
    can_define = may_define(settings.DATASET_CATALOGUE)
    DatasetPart.objects.create(
        request=request,
        split_from=whole,
        name=name,
        whole=dataset,
        first=0,
        last=len(files),
        total=len(files),
        files=list(files),
        is_held=True,
        due_at=at,
        defined_at=None if can_define else at,
    )
    if can_define:
        enqueue("production.define_waiting")


def held_files(request: Request, name: str) -> list[str] | None:
    """Return the files of a dataset that the portal holds; None if it does not.

    It holds the parts of recoveries for all requests of their experiment, such as copies.
    """
    parts = DatasetPart.objects.filter(
        name=name, is_held=True, request__experiment=request.experiment_id
    )
    part = parts.order_by("-pk").first()
    return None if part is None else list(part.files or [])


def recovery_of(request: Request, names: Collection[str]) -> tuple[str, Request] | None:
    """Return a file of these, and the recovery of the request that has it; None if none has.

    Recoveries that were cancelled or rejected do not count.
    """
    parts = DatasetPart.objects.filter(split_from=request, is_held=True)
    for part in parts.exclude(request__state__in=GIVEN_BACK).select_related("request"):
        shared = set(part.files or ()) & set(names)
        if shared:
            return min(shared), part.request
    return None


def define_parts(*, at: datetime) -> int:
    """Define the due parts, and return how many were defined.

    It runs without a transaction, and can be killed and run again.
    """
    waiting = DatasetPart.objects.filter(defined_at=None, due_at__lte=at).exclude(
        request__state__in=CLOSED
    )
    done = 0
    for part in waiting.select_related("request").order_by("pk"):
        try:
            done += _define(part, at)
        except CatalogueError as error:
            log.warning("dataset %s cannot be defined: %s", part.name, error)
            DatasetPart.objects.filter(pk=part.pk).update(
                error=str(error)[:2000], due_at=at + _RETRY_AFTER
            )
    return done


def _define(part: DatasetPart, at: datetime) -> bool:
    catalogue = defining_catalogue(settings.DATASET_CATALOGUE)
    if catalogue is None:
        raise CatalogueError("the portal cannot define datasets in the catalogue")
    if part.files is not None:
        files = part.files
    else:
        files = _share_files(part, catalogue)
    if not files:
        raise CatalogueError(
            f"the catalogue lists too few files of {part.whole}: every part needs at least one"
        )
    catalogue.define(part.name, part.whole, files)
    with transaction.atomic():
        if not DatasetPart.objects.filter(pk=part.pk, defined_at=None).update(
            defined_at=at, error=""
        ):
            return False
        data = {"dataset": part.name, "whole": part.whole, "files": len(files)}
        publish(kind="request.dataset_defined", target=part.request, by=PORTAL, at=at, data=data)
    return True


def _share_files(part: DatasetPart, catalogue: ListsFiles) -> list[str]:
    """Divide the files of a dataset among all its parts, and return the files of this part.

    The files are listed once.
    """
    listed = [file.name for file in catalogue.files_of(part.whole)]
    with transaction.atomic():
        same = DatasetPart.objects.select_for_update().filter(
            split_from=part.split_from_id, whole=part.whole
        )
        for other in same.order_by("pk"):
            if other.files is None and listed:
                first = len(listed) * other.first // other.total
                last = len(listed) * other.last // other.total
                other.files = listed[first:last]
                other.save(update_fields=["files"])
            if other.pk == part.pk:
                part.files = other.files
    return part.files or []
