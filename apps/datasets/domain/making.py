"""Make datasets in a catalogue of the files of a stage: input files by state, or output files.

Pages store which files; workers ask the catalogue, until it has made the dataset or refuses it.
Asking again is safe: a catalogue changes nothing if the dataset has exactly these files, and
completes what it left unfinished.
"""

from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Q, QuerySet

from apps.accounts.models import User
from apps.core.domain.events import publish
from apps.core.domain.work import BackOff, Queue
from apps.core.errors import InvalidFields, InvalidTransition, NotAllowed
from apps.datasets.catalogues import base
from apps.datasets.domain.catalogue_queue import ask_in_turn
from apps.datasets.domain.look_ups import open_adapter
from apps.datasets.domain.steps import LONGEST_NAME, has_placeholder
from apps.datasets.enums import NOT_IN_A_JOB, ChosenFiles, FileState, MakingState
from apps.datasets.models import Catalogue, InputFile, MadeDataset, OutputFile
from apps.production.domain.actors import may
from apps.production.enums import PORTAL, Actor
from apps.production.models import Request, Stage

#: Files of a dataset that is made at once.
MOST_FILES = 100_000
#: Datasets of one run; the next one continues.
MOST_A_RUN = 20
#: Datasets that a page lists, the newest.
MOST_SHOWN = 20
#: Advisory lock of a catalogue, held while datasets are made in it.
MAKING_LOCK = 4_716_080
_KINDS = {MakingState.MADE: "making.made", MakingState.REFUSED: "making.refused"}

#: The lease is longer than a catalogue takes for the most files.
MAKINGS = Queue(
    name="makings",
    title="Datasets to make in catalogues",
    model=MadeDataset,
    unfinished_rows=Q(state=MakingState.QUEUED),
    back_off=BackOff((60, 300, 1800)),
    lease=timedelta(minutes=30),
)


def may_make(user: User, request: Request) -> bool:
    """Return whether a user may make datasets of the files of a request."""
    return may(user, Actor.LIAISON_OR_APPROVER, request)


def check_may_make(user: User, request: Request) -> None:
    """Raise `NotAllowed` if a user may not make datasets of the files of a request."""
    if not may_make(user, request):
        raise NotAllowed(
            f"Only liaisons of {request.experiment} and approvers can make datasets of its files."
        )


def catalogues_that_make() -> list[Catalogue]:
    """Return the active catalogues in which the portal can make datasets; sends no request."""
    catalogues = []
    for catalogue in Catalogue.objects.filter(active=True):
        try:
            adapter = open_adapter(catalogue)
        except base.CatalogueError:
            continue
        if isinstance(adapter, base.MakesDatasets):
            catalogues.append(catalogue)
    return catalogues


def names_of_files(stage: Stage, choice: ChosenFiles) -> QuerySet[Any, str]:
    """Return the names of these files of a stage, oldest first."""
    if choice == ChosenFiles.OUTPUTS:
        outputs = OutputFile.objects.filter(stage=stage, counts=True).order_by("pk")
        return outputs.values_list("name", flat=True)
    files = InputFile.objects.filter(stage=stage).order_by("pk")
    if choice == ChosenFiles.MISSING:
        files = files.filter(state__in=NOT_IN_A_JOB)
    elif choice != ChosenFiles.ALL:
        files = files.filter(state=FileState(choice.value))
    return files.values_list("name", flat=True)


def source_dataset(stage: Stage, choice: ChosenFiles) -> str:
    """Return the dataset that these files are from; empty if it has no single name."""
    name = stage.input_dataset
    if choice == ChosenFiles.OUTPUTS:
        name = stage.output_dataset
    return "" if has_placeholder(name) else name


def suggest_name(request: Request, stage: Stage, choice: ChosenFiles) -> str:
    """Return a name for a dataset of these files, in the scope of the dataset they are from."""
    scope, colon, _ = source_dataset(stage, choice).rpartition(":")
    key = request.key.lower().replace("-", "_")
    return f"{scope}{colon}{key}_stage{stage.position + 1}_{choice.value}"


@transaction.atomic
def order_dataset(
    *,
    request: Request,
    position: int,
    chosen: str,
    catalogue: str,
    name: str,
    by: User,
    at: datetime,
) -> MadeDataset:
    """Store that a dataset of files of a stage is to be made; a worker asks the catalogue.

    Repeating it changes nothing while the files are the same; one that was refused is tried again,
    with the files as they stand now. Raises `NotAllowed`, `InvalidFields` for a catalogue that
    makes none or a name that is taken or of another scope, `InvalidTransition` without files.
    """
    check_may_make(by, request)
    # One at a time: two clicks make one row.
    request = Request.objects.select_for_update(of=("self",)).get(pk=request.pk)
    stage = Stage.objects.filter(request=request, position=position).first()
    if stage is None:
        raise InvalidFields({"position": [f"{request} has no such stage."]})
    named_catalogues = [row for row in catalogues_that_make() if row.name == catalogue]
    if not named_catalogues:
        raise InvalidFields({"catalogue": ["The portal makes no datasets in this catalogue."]})
    choice = ChosenFiles(chosen)
    source = source_dataset(stage, choice)
    _check_name(name, source)
    files = list(names_of_files(stage, choice)[: MOST_FILES + 1])
    if not files:
        raise InvalidTransition(f"{request}: {stage.name} has no {choice.label}.")
    if len(files) > MOST_FILES:
        raise InvalidTransition(f"A dataset is made of at most {MOST_FILES:,} files at once.")

    values = {
        "request": request,
        "position": position,
        "chosen": choice,
        "source": source,
        "files": files,
        "file_count": len(files),
        "requested_by": by.username,
        "requested_at": at,
        "due_at": at,
    }
    dataset, is_new = MadeDataset.objects.get_or_create(
        catalogue=named_catalogues[0], name=name, defaults=values
    )
    if not is_new:
        dataset = MadeDataset.objects.select_for_update(of=("self",)).get(pk=dataset.pk)
        _check_repeated(dataset, request, files)
        if dataset.state != MakingState.REFUSED:
            return dataset
        again = {**values, "state": MakingState.QUEUED, "attempts": 0, "last_error": ""}
        MadeDataset.objects.filter(pk=dataset.pk).update(**again)
        dataset.refresh_from_db()
    _publish(dataset, kind="making.requested", by=by, at=at)
    return dataset


def _check_repeated(dataset: MadeDataset, request: Request, files: Collection[str]) -> None:
    """Raise `InvalidFields` if a dataset is of another request or, unless refused, other files."""
    if dataset.request_id != request.pk:
        raise InvalidFields({"name": ["Another request has a dataset of this name."]})
    if dataset.state != MakingState.REFUSED and set(dataset.files) != set(files):
        raise InvalidFields({"name": ["A dataset of this name has other files."]})


def _check_name(name: str, source: str) -> None:
    """Raise `InvalidFields` unless a dataset of files of `source` can have a name."""
    if not 0 < len(name) <= LONGEST_NAME or not name.isprintable() or " " in name:
        raise InvalidFields(
            {"name": [f"Enter a name of at most {LONGEST_NAME} characters without spaces."]}
        )
    scope, colon, _ = source.rpartition(":")
    if colon and not name.startswith(f"{scope}:"):
        raise InvalidFields({"name": [f"The name must be in the scope of its files: {scope}:…"]})


def made_datasets_of(request: Request, position: int | None = None) -> list[MadeDataset]:
    """Return the datasets that were made of files of a request, or stage, without their files."""
    made_datasets = (
        MadeDataset.objects.filter(request=request).select_related("catalogue").defer("files")
    )
    if position is not None:
        made_datasets = made_datasets.filter(position=position)
    return list(made_datasets.order_by("-requested_at", "-pk")[:MOST_SHOWN])


def make_datasets(catalogue: Catalogue, *, now: Callable[[], datetime]) -> int:
    """Make the datasets that wait in a catalogue; return how many it made or refused."""

    def ask(dataset: MadeDataset) -> None:
        _make(catalogue, dataset)
        _end(dataset, MakingState.MADE, now())

    def refuse(dataset: MadeDataset, error: str, at: datetime) -> None:
        _end(dataset, MakingState.REFUSED, at, error)

    return ask_in_turn(MAKINGS, catalogue, most=MOST_A_RUN, ask=ask, refuse=refuse, now=now)


def _make(catalogue: Catalogue, dataset: MadeDataset) -> None:
    """Ask the catalogue for a dataset. Raises `CatalogueError`."""
    adapter = open_adapter(catalogue)
    if not isinstance(adapter, base.MakesDatasets):
        raise base.Refused("The portal makes no datasets in this catalogue.")
    # The same at each attempt: by it, catalogues know what they left unfinished.
    description = (
        f"{dataset.file_count} files of {dataset.source or dataset.request.key}, made by opsportal"
    )
    adapter.make_dataset(
        name=dataset.name, files=dataset.files, source=dataset.source, description=description
    )


@transaction.atomic
def _end(dataset: MadeDataset, state: MakingState, at: datetime, error: str = "") -> None:
    if not MAKINGS.hold([dataset]):
        return
    made_at = at if state == MakingState.MADE else None
    MadeDataset.objects.filter(pk=dataset.pk).update(
        state=state, made_at=made_at, attempts=0, last_error=error
    )
    _publish(dataset, kind=_KINDS[state], by=PORTAL, at=at, reason=error)


def _publish(
    dataset: MadeDataset, *, kind: str, by: User | str, at: datetime, reason: str = ""
) -> None:
    publish(
        kind=kind,
        target=dataset.request,
        by=by,
        at=at,
        reason=reason,
        data={
            "dataset": dataset.name,
            "catalogue": dataset.catalogue.name,
            "files": dataset.file_count,
        },
    )
