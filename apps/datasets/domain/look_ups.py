"""Look up datasets in the catalogues of the back office.

Pages and tasks read what catalogues answered earlier, and queue what is unknown or old. Workers ask
the catalogues, so that no page waits for one. An unknown answer is never “there is none”.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from apps.core.domain.work import BackOff, Queue
from apps.datasets.catalogues import base
from apps.datasets.catalogues.registry import open_catalogue
from apps.datasets.domain.catalogue_queue import error_text
from apps.datasets.domain.places import UNKNOWN_PLACES, DatasetPlaces, locate_files
from apps.datasets.domain.staging_options import STAGING_OPTIONS, can_stage
from apps.datasets.domain.steps import is_possible_name
from apps.datasets.models import Catalogue, KnownDataset
from apps.production.domain.outputs.datasets import CatalogueError, DataFile, Dataset

#: Age of an answer from which it is refreshed when it is needed.
FRESH = timedelta(hours=1)
#: How long an answer that a dataset does not exist is trusted while it is refreshed.
ABSENT_FOR = timedelta(days=1)
#: Answers are deleted this long after they were last needed.
KEPT = timedelta(days=90)
#: No more look-ups than this wait: users can type any number of names.
MOST_WAITING = 20_000
#: Advisory lock of a catalogue, held while it is asked.
ASKING_LOCK = 4_716_048
#: Look-ups of one run; the next one continues.
MOST_A_RUN = 200

#: The lease is longer than an adapter tries.
LOOK_UPS = Queue(
    name="datasets",
    title="Datasets to look up",
    model=KnownDataset,
    unfinished_rows=Q(is_waiting=True),
    back_off=BackOff((60, 300, 1800)),
    lease=timedelta(minutes=10),
)


class BackOfficeCatalogues:
    """All active catalogues of the back office, as one: `DATASET_CATALOGUE=portal`."""

    def __init__(self, address: str = "") -> None:
        if address:
            raise CatalogueError("DATASET_CATALOGUE=portal has no address.")

    def find(self, names: Collection[str]) -> Mapping[str, Dataset]:
        """Return the known datasets among these names, in two queries if none is to be asked for.

        Raises `CatalogueError` while it is unknown whether one of them exists.
        """
        at = timezone.now()
        catalogues = _active_catalogues()
        possible_names = sorted(name for name in set(names) if is_possible_name(name))
        answers_by_name = _answers_about(possible_names, catalogues, at)
        datasets = {}
        unknown = []
        for name in possible_names:
            answers = answers_by_name[name]
            dataset = _existing(answers)
            if dataset is not None:
                datasets[name] = dataset
                continue
            is_absent = all(_is_absent(answer, at) for answer in answers)
            if not is_absent or len(answers) < len(catalogues):
                unknown.append(name)
        if unknown:
            raise CatalogueError(_why_unknown(unknown, answers_by_name))
        return datasets

    def files_of(self, name: str) -> list[DataFile]:
        """Return the current files of a dataset, none if it is unknown.

        Asks the catalogues now: not for pages. Raises `CatalogueError`.
        """
        try:
            for catalogue in _active_catalogues():
                adapter = open_adapter(catalogue)
                if adapter.describe(name).exists:
                    return _files_in(adapter, name)
        except base.CatalogueError as error:
            raise CatalogueError(str(error)) from error
        return []

    def can_define(self) -> bool:
        """Whether an active catalogue lets the portal make datasets. Raises `CatalogueError`."""
        try:
            for catalogue in _active_catalogues():
                if isinstance(open_adapter(catalogue), base.MakesDatasets):
                    return True
        except base.CatalogueError as error:
            raise CatalogueError(str(error)) from error
        return False

    def define(self, name: str, whole: str, files: Sequence[str]) -> None:
        """Make a dataset of these files in the catalogue that has the whole one.

        Asks the catalogues now: not for pages. Repeating it changes nothing. Raises
        `CatalogueError`, also if a different dataset has this name.
        """
        try:
            for catalogue in _active_catalogues():
                adapter = open_adapter(catalogue)
                if isinstance(adapter, base.MakesDatasets) and adapter.describe(whole).exists:
                    description = f"{len(files)} files of {whole}, made by opsportal"
                    adapter.make_dataset(
                        name=name, files=files, source=whole, description=description
                    )
                    return
        except base.CatalogueError as error:
            raise CatalogueError(str(error)) from error
        raise CatalogueError(f"no catalogue that can make datasets has {whole}")


def open_adapter(catalogue: Catalogue) -> base.Catalogue:
    """Return the adapter of a catalogue. Raises `base.CatalogueError`."""
    options = {}
    for name, value in catalogue.options.items():
        if name not in STAGING_OPTIONS:
            options[str(name)] = str(value)
    configuration = base.CatalogueConfiguration(
        catalogue.base_url, catalogue.credential_file, options
    )
    return open_catalogue(catalogue.kind, configuration)


def _active_catalogues() -> list[Catalogue]:
    catalogues = list(Catalogue.objects.filter(active=True))
    if not catalogues:
        raise CatalogueError("No catalogue in the back office is active.")
    return catalogues


def _answers_about(
    names: Sequence[str], catalogues: Sequence[Catalogue], at: datetime
) -> Mapping[str, list[KnownDataset]]:
    """Return the answers by name, and queue what is missing or old. The names are sorted."""
    answers: dict[str, list[KnownDataset]] = defaultdict(list)
    known = KnownDataset.objects.filter(catalogue__in=catalogues, name__in=names)
    needed_again = []
    for answer in known.select_related("catalogue").order_by("catalogue__name"):
        answers[answer.name].append(answer)
        is_old = answer.answered_at is not None and answer.answered_at <= at - FRESH
        if (is_old and not answer.is_waiting) or answer.requested_at <= at - timedelta(days=1):
            needed_again.append(answer.pk)

    missing = []
    # In sorted order, so that two transactions never wait for each other.
    for name in names:
        answered_by = {answer.catalogue_id for answer in answers[name]}
        for catalogue in catalogues:
            if catalogue.pk not in answered_by:
                missing.append(
                    KnownDataset(catalogue=catalogue, name=name, requested_at=at, due_at=at)
                )
    if missing and LOOK_UPS.unfinished().count() < MOST_WAITING:
        KnownDataset.objects.bulk_create(missing, ignore_conflicts=True)
    if needed_again:
        again = KnownDataset.objects.filter(pk__in=needed_again)
        again.filter(is_waiting=True).update(requested_at=at)
        again.filter(is_waiting=False).update(
            requested_at=at, is_waiting=True, due_at=at, attempts=0, last_error=""
        )
    return answers


def _existing(answers: Sequence[KnownDataset]) -> Dataset | None:
    """Return the dataset of the first catalogue that has it; an old answer is better than none."""
    for answer in answers:
        if answer.exists:
            return Dataset(
                answer.name,
                answer.files,
                answer.events,
                answer.size_bytes,
                frozen=answer.is_frozen,
                files_located=answer.files_located,
                files_on_disk=answer.files_on_disk,
                files_on_tape_only=answer.files_on_tape_only,
                files_without_location=answer.files_without_location,
                can_stage=can_stage(answer.catalogue),
            )
    return None


def _is_absent(answer: KnownDataset, at: datetime) -> bool:
    return (
        answer.exists is False
        and answer.answered_at is not None
        and answer.answered_at > at - ABSENT_FOR
    )


def _why_unknown(names: Sequence[str], answers: Mapping[str, Sequence[KnownDataset]]) -> str:
    for name in names:
        for answer in answers[name]:
            if answer.is_waiting and answer.last_error:
                return f"{answer.catalogue}: {answer.last_error}"
    shown = ", ".join(names[:3])
    more = len(names) - 3
    if more > 0:
        return f"{shown} and {more} more are being looked up. Check again in a minute."
    verb = "is" if len(names) == 1 else "are"
    return f"{shown} {verb} being looked up. Check again in a minute."


def _files_in(adapter: base.Catalogue, name: str) -> list[DataFile]:
    files = []
    for file in adapter.files(name):
        if not file.retired:
            run = min(file.runs) if file.runs else None
            files.append(DataFile(file.name, run, file.events, file.size_bytes))
    return files


def ask_catalogue(catalogue: Catalogue, *, now: Callable[[], datetime]) -> int:
    """Ask a catalogue for the datasets that wait; return how many answers were stored.

    Ends with the first question that it does not answer: the next run continues. Two workers must
    not do this for a catalogue at once.
    """
    try:
        adapter = open_adapter(catalogue)
    except base.CatalogueError as error:
        Catalogue.objects.filter(pk=catalogue.pk).update(error=error_text(error))
        return 0
    stored = 0
    for _ in range(MOST_A_RUN):
        claimed = LOOK_UPS.claim(LOOK_UPS.due(now()).filter(catalogue=catalogue)[:1], at=now())
        if not claimed:
            break
        [waiting] = claimed
        try:
            summary = adapter.describe(waiting.name)
        except base.BadName:
            summary = base.DatasetSummary(waiting.name, exists=False)
        except base.Refused as error:  # it concerns this dataset alone
            LOOK_UPS.fail(waiting, error_text(error), at=now())
            continue
        except base.CatalogueError as error:
            LOOK_UPS.fail(waiting, error_text(error), at=now())
            Catalogue.objects.filter(pk=catalogue.pk).update(error=error_text(error))
            break
        places, catalogue_fault = _ask_where(adapter, summary, now=now)
        stored += _store_answer(waiting, summary, places, now())
        if catalogue_fault:
            Catalogue.objects.filter(pk=catalogue.pk).update(error=catalogue_fault)
            break
    return stored


def _ask_where(
    adapter: base.Catalogue, summary: base.DatasetSummary, *, now: Callable[[], datetime]
) -> tuple[DatasetPlaces, str]:
    """Return where the files of a dataset are, and why the catalogue does not answer now.

    The reason is empty if it answers, or refuses only this dataset. No failure is raised, so that
    the caller can store that the dataset exists.
    """
    if not summary.exists:
        return UNKNOWN_PLACES, ""
    try:
        return locate_files(adapter, summary, now=now), ""
    except base.Refused as error:
        return DatasetPlaces(reason=error_text(error)), ""
    except base.CatalogueError as error:
        reason = error_text(error)
        return DatasetPlaces(reason=reason), reason


@transaction.atomic
def _store_answer(
    answer: KnownDataset, summary: base.DatasetSummary, places: DatasetPlaces, at: datetime
) -> bool:
    Catalogue.objects.filter(pk=answer.catalogue_id).update(answered_at=at, error="")
    if not LOOK_UPS.hold([answer]):
        return False
    KnownDataset.objects.filter(pk=answer.pk).update(
        exists=summary.exists,
        files=summary.files,
        events=summary.events,
        size_bytes=summary.size_bytes,
        is_frozen=summary.frozen,
        files_located=places.files,
        files_on_disk=places.on_disk,
        files_on_tape_only=places.on_tape_only,
        files_without_location=places.without_location,
        unlocated_reason=places.reason,
        answered_at=at,
        is_waiting=False,
        attempts=0,
        last_error="",
    )
    return True


def forget_datasets(*, at: datetime) -> int:
    """Delete the answers that were not read for a long time; return how many."""
    deleted, _ = KnownDataset.objects.filter(requested_at__lt=at - KEPT).delete()
    return deleted
