"""Split a request by runs, files or events into parts whose totals equal the original."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise

from apps.core.errors import InvalidFields
from apps.production.domain.checks.rules.chain import source_positions
from apps.production.domain.checks.rules.declared import number, runs, text
from apps.production.domain.checks.rules.runs_and_seeds import NEW_RUNS
from apps.production.domain.content.model import RequestContent, StageContent
from apps.production.domain.types.arguments import Runs, Value, runs_text
from apps.production.domain.types.fields import REQUEST

MAX_PARTS = 50
#: Quantities divided among the parts besides events and jobs: an argument of some stages, and one
#: of the request.
FILES = "files"
SEED = "first_seed"


class SplitUnit(StrEnum):
    RUNS = "runs"
    FILES = "files"
    EVENTS = "events"


@dataclass(frozen=True)
class RequestPart:
    content: RequestContent
    note: str


@dataclass(frozen=True)
class Cut:
    """A division of `total` units: part `i` ends with unit `ends[i]`.

    Other quantities are divided in proportion.
    """

    total: int
    ends: tuple[int, ...]

    def share(self, quantity: int) -> list[int]:
        """Divide a quantity into whole shares in proportion to the parts. They add up to it."""
        reached = [quantity * end // self.total for end in (0, *self.ends)]
        return [after - before for before, after in pairwise(reached)]


@dataclass(frozen=True)
class Split:
    """The parts in order, and notes for the user.

    `defines` is whether the portal defines the datasets that the parts read.
    """

    parts: list[RequestPart]
    notes: list[str]
    cut: Cut
    defines: bool


def split_counts(content: RequestContent) -> dict[SplitUnit, int]:
    """Return the units by which a request can be split, with the number of each."""
    files = 0
    events = 0
    for stage in content.stages:
        files = files or int(number(stage, FILES) or 0)
        events = events or stage.events or 0
    counts = {
        SplitUnit.RUNS: count_runs(runs(content, _runs_argument(content))),
        SplitUnit.FILES: files,
        SplitUnit.EVENTS: events,
    }
    return {unit: count for unit, count in counts.items() if count > 1}


def refusal_to_split(content: RequestContent) -> str:
    """Return why a scan or a request of this type can never be split, or an empty text."""
    if content.scan.strip():
        return (
            "Its jobs are divided among the points of its parameter scan. Clone it with fewer "
            "values instead."
        )
    if not content.workflow.argument("stop_on"):
        return ""
    return (
        "Keep-up processes each file once, as it arrives. Two such requests would process the "
        "same files twice. "
        "Change its stop date instead; this is possible while it runs."
    )


def split(content: RequestContent, unit: SplitUnit, size: int, *, defines: bool = False) -> Split:
    """Split content into parts of `size` runs, files or events each.

    The last part has the remainder. `defines` is whether the portal will define the datasets that
    the parts read. Raises `InvalidFields`.
    """
    _check(content, unit, size)
    total = split_counts(content)[unit]
    cut = Cut(total, tuple(min(end, total) for end in range(size, total + size, size)))
    count = len(cut.ends)
    if short := list(_find_too_few(content, count)):
        raise InvalidFields({"size": short})

    run_argument = _runs_argument(content) if unit is SplitUnit.RUNS else ""
    runs_by_argument = {}
    for name in dict.fromkeys([run_argument, NEW_RUNS]):
        if text(content, name):
            runs_by_argument[name] = _cut_runs(runs(content, name), cut)
    cut_stages = [_cut_stage(stage, cut) for stage in content.stages]

    parts = []
    first_unit = 1
    for index, last_unit in enumerate(cut.ends):
        label = f"part {index + 1} of {count}"
        stages_of_part = tuple(parts_of_stage[index] for parts_of_stage in cut_stages)
        part = replace(
            content,
            title=_title_of_part(content.title, f" ({label})"),
            arguments=_arguments_of_part(content, index, runs_by_argument, cut_stages),
            stages=_rename_datasets(stages_of_part, f"_part{index + 1}of{count}", unit),
        )
        if run_argument:
            units = runs_text(runs_by_argument[run_argument][index])
        else:
            units = f"{first_unit:,} to {last_unit:,}"
        parts.append(RequestPart(part, f"{label}: {unit} {units}"[:200]))
        first_unit = last_unit + 1
    return Split(
        parts,
        list(_notes(content, unit, defines=defines)),
        cut,
        defines and unit is not SplitUnit.RUNS,
    )


def _arguments_of_part(
    content: RequestContent,
    index: int,
    runs_by_argument: Mapping[str, Sequence[Runs]],
    cut_stages: Sequence[Sequence[StageContent]],
) -> dict[str, Value]:
    """Return the arguments of a part, with its runs and its first seed.

    Each job has a seed, so the first seed follows the jobs of the earlier parts.
    """
    arguments: dict[str, Value] = dict(content.arguments)
    for name, runs_of_parts in runs_by_argument.items():
        arguments[name] = runs_text(runs_of_parts[index])
    if seed := number(content, SEED):
        earlier_jobs = sum(stage.jobs or 0 for stage in cut_stages[0][:index])
        arguments[SEED] = int(seed) + earlier_jobs
    return arguments


def _title_of_part(title: str, suffix: str) -> str:
    """Return a title with a suffix, shortened to the longest that is allowed."""
    if not title:
        return ""
    return title[: REQUEST["title"].most - len(suffix)] + suffix


def _check(content: RequestContent, unit: SplitUnit, size: int) -> None:
    known = split_counts(content)
    if why := refusal_to_split(content):
        raise InvalidFields({"by": [why]})
    if unit not in known:
        raise InvalidFields(
            {"by": [f"The request does not state its number of {unit}, or has only one."]}
        )
    if not 0 < size < known[unit]:
        raise InvalidFields(
            {
                "size": [
                    (
                        f"Enter a whole number from 1 to {known[unit] - 1:,}. The request has "
                        f"{known[unit]:,} {unit}."
                    )
                ]
            }
        )
    count = -(-known[unit] // size)
    least = -(-known[unit] // MAX_PARTS)
    if count > MAX_PARTS:
        raise InvalidFields(
            {
                "size": [
                    (
                        f"This would give {count:,} parts. Enter at least {least:,} for at most "
                        f"{MAX_PARTS} parts."
                    )
                ]
            }
        )


def _find_too_few(content: RequestContent, parts: int) -> Iterator[str]:
    for position, stage in enumerate(content.stages, start=1):
        counts = {"events": stage.events, "jobs": stage.jobs, "files": number(stage, FILES)}
        for what, count in counts.items():
            if count and count < parts:
                yield (
                    f"Stage {position} has {int(count):,} {what}, fewer than {parts} parts. Enter "
                    "a larger size."
                )
    if text(content, NEW_RUNS) and count_runs(runs(content, NEW_RUNS)) < parts:
        yield f"The request has fewer new run numbers than {parts} parts. Enter a larger size."
    if number(content, SEED) and not (content.stages and content.stages[0].jobs):
        yield (
            "Enter the number of jobs of the first stage before splitting: each job has its own "
            "seed."
        )


def _runs_argument(content: RequestContent) -> str:
    names = (argument.name for argument in content.workflow.arguments if argument.type == "runs")
    return next((name for name in names if runs(content, name)), "")


def count_runs(ranges: Runs) -> int:
    return sum(last - first + 1 for first, last in ranges)


def _cut_runs(all_runs: Runs, cut: Cut) -> list[Runs]:
    """Return the runs of each part."""
    runs_of_parts: list[Runs] = []
    left = list(all_runs)
    for share in cut.share(count_runs(left)):
        part: list[tuple[int, int]] = []
        while missing := share - count_runs(part):
            first, last = left.pop(0)
            end = min(last, first + missing - 1)
            part.append((first, end))
            if end < last:
                left.insert(0, (end + 1, last))
        runs_of_parts.append(part)
    return runs_of_parts


def _cut_stage(stage: StageContent, cut: Cut) -> list[StageContent]:
    def shares(quantity: float | None) -> list[int] | list[None]:
        return cut.share(int(quantity)) if quantity else [None] * len(cut.ends)

    parts = []
    for events, jobs, files in zip(
        shares(stage.events), shares(stage.jobs), shares(number(stage, FILES)), strict=True
    ):
        if files:
            arguments = {**stage.arguments, FILES: files}
        else:
            arguments = {**stage.arguments}
        parts.append(replace(stage, events=events, jobs=jobs, arguments=arguments))
    return parts


def _rename_datasets(
    stages: tuple[StageContent, ...], suffix: str, unit: SplitUnit
) -> tuple[StageContent, ...]:
    """Rename the outputs of a part and the inputs that differ between parts.

    Inputs from outside keep their name if run numbers distinguish the parts.
    """
    outputs = {stage.output_dataset for stage in stages}
    renamed = []
    for stage in stages:
        output_dataset = stage.output_dataset
        if output_dataset:
            output_dataset += suffix
        input_dataset = stage.input_dataset
        keeps_name = unit is SplitUnit.RUNS and input_dataset not in outputs
        if input_dataset and not keeps_name:
            input_dataset += suffix
        renamed.append(replace(stage, output_dataset=output_dataset, input_dataset=input_dataset))
    return tuple(renamed)


def list_outside_inputs(content: RequestContent) -> Iterator[tuple[int, str]]:
    """Yield number, from 1, and input of the stages that read a dataset of no other stage."""
    for position, (stage, source) in enumerate(
        zip(content.stages, source_positions(content), strict=True), start=1
    ):
        if stage.input_dataset and source is None:
            yield position, stage.input_dataset


def _notes(content: RequestContent, unit: SplitUnit, *, defines: bool) -> Iterator[str]:
    inputs = list(list_outside_inputs(content))
    if defines:
        what = "The portal defines these datasets in the catalogue."
    else:
        what = "Define these datasets, or enter others, before you submit the parts."
    if unit is not SplitUnit.RUNS:
        for position, name in inputs:
            yield (
                f"Stage {position} of each part reads its part of {name}, with the suffix "
                f"_part1of2 and so on. {what}"
            )
    if not inputs and not text(content, NEW_RUNS) and not number(content, SEED):
        yield (
            "The request has neither seeds nor run numbers. Ensure that the parts do not generate "
            "the same events."
        )
