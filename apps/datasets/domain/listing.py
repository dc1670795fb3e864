"""Lists of datasets: those that requests write, and those that requests only read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from django.db.models import Exists, F, Max, OuterRef, Q, QuerySet

from apps.accounts.models import Experiment, Principal
from apps.datasets.domain.answers import StoredAnswers, answers_for
from apps.datasets.domain.steps import (
    is_possible_name,
    names_that_fit,
    stages_of_scans,
    visible_stages,
)
from apps.datasets.domain.uses import count_uses
from apps.datasets.models import InputFile, KnownDataset, OutputFile
from apps.production.models import Stage

_File = TypeVar("_File", InputFile, OutputFile)
#: Shorter texts are part of the names of most datasets.
SHORTEST_TEXT = 3
#: The columns that the list shows. Requests have many others, some of them long.
_COLUMNS = (
    "position",
    "name",
    "release",
    "configuration",
    "output_dataset",
    "request__key",
    "request__scan",
    "request__state",
    "request__experiment__key",
    "counts__files_out",
    "counts__events_out",
    "output_totals__counting_files",
    "output_totals__counting_events",
    "output_totals__counting_bytes",
)


@dataclass(frozen=True)
class DatasetRow:
    """A dataset in a list. `stage` writes it; None if no request that the user may see does."""

    name: str
    stage: Stage | None
    uses: int
    answer: KnownDataset | None


def written_datasets(user: Principal) -> QuerySet[Stage]:
    """Return the stages that write a dataset, of requests that the user may see."""
    stages = visible_stages(user).exclude(output_dataset="")
    related = ("request__experiment", "counts", "output_totals")
    return stages.select_related(*related).only(*_COLUMNS)


def with_name_like(stages: QuerySet[Stage], text: str) -> QuerySet[Stage]:
    """Return the stages whose dataset has a text in its name.

    A dataset of one point of a scan is also found by its full name.
    """
    condition = Q(output_dataset__icontains=text)
    if is_possible_name(text):
        at_a_point = []
        scans = stages_of_scans(stages, ["output_dataset"], [text]).order_by()
        for pk, template, scan in scans.values_list("pk", "output_dataset", "request__scan"):
            if names_that_fit([text], template, scan):
                at_a_point.append(pk)
        if at_a_point:
            condition |= Q(pk__in=at_a_point)
    return stages.filter(condition)


def find_datasets(text: str, user: Principal, *, most: int) -> list[str]:
    """Return names with a text in them, of datasets of the newest requests: at most `most`."""
    if len(text) < SHORTEST_TEXT:
        return []
    names: dict[str, None] = {}
    stages = with_name_like(written_datasets(user), text).order_by("-pk")
    for name in stages.values_list("output_dataset", flat=True)[:most]:
        names[name] = None
    return list(names)


def find_inputs(text: str, user: Principal, *, most: int) -> list[str]:
    """Return names with a text in them that requests only read, newest first: at most `most`."""
    if len(text) < SHORTEST_TEXT:
        return []
    inputs = only_read_datasets(user, text=text)
    return list(inputs.order_by(F("newest").desc()).values_list("input_dataset", flat=True)[:most])


def find_output_files(text: str, user: Principal, *, most: int) -> list[OutputFile]:
    """Return the output files of this name that a user may see, newest first: at most `most`.

    Files that count come first. The path or URL of a file also finds its name.
    """
    return list(_with_name(OutputFile, text, user).order_by("-counts", "-pk")[:most])


def find_input_files(text: str, user: Principal, *, most: int) -> list[InputFile]:
    """Return the input files of this name in stages that a user may see, newest first.

    At most `most`. The path or URL of a file also finds its name.
    """
    return list(_with_name(InputFile, text, user).order_by("-pk")[:most])


def _with_name(model: type[_File], text: str, user: Principal) -> QuerySet[_File]:
    """Whole names only: they have an index, and a dataset may have a million files."""
    names = [text, text.rsplit("/", 1)[-1]]
    files = model._default_manager.filter(name__in=names, stage__in=visible_stages(user))
    return files.select_related("stage__request")


def only_read_datasets(
    user: Principal, *, text: str = "", experiment: Experiment | None = None
) -> QuerySet[Stage, Any]:
    """Return the names that stages read and no visible stage writes, such as raw data.

    Each is a dictionary with `input_dataset`, and `newest`, the newest stage that reads it.
    """
    stages = visible_stages(user).order_by()
    writing = stages.exclude(output_dataset="").filter(output_dataset=OuterRef("input_dataset"))
    reading = stages.exclude(input_dataset="").filter(~Exists(writing))
    if text:
        reading = reading.filter(input_dataset__icontains=text)
    if experiment is not None:
        reading = reading.filter(request__experiment=experiment)
    return reading.values("input_dataset").annotate(newest=Max("pk"))


def rows_of_stages(stages: Sequence[Stage], user: Principal) -> list[DatasetRow]:
    """Return the datasets that these stages write, with uses and answers."""
    uses, answers = _facts({stage.output_dataset for stage in stages}, user)
    rows = []
    for stage in stages:
        name = stage.output_dataset
        rows.append(DatasetRow(name, stage, uses.get(name, 0), answers[name].newest))
    return rows


def rows_of_names(names: Sequence[str], user: Principal) -> list[DatasetRow]:
    """Return datasets that no stage writes, with uses and answers."""
    uses, answers = _facts(set(names), user)
    rows = []
    for name in names:
        rows.append(DatasetRow(name, None, uses.get(name, 0), answers[name].newest))
    return rows


def _facts(
    names: set[str], user: Principal
) -> tuple[Mapping[str, int], Mapping[str, StoredAnswers]]:
    return count_uses(names, user), answers_for(names, user)
