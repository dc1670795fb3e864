"""Rules for how the stages of a chain fit together."""

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from apps.production.domain.checks.base import Facts, Fix, Problem, Severity, rule, stages
from apps.production.domain.checks.rules.declared import number, text
from apps.production.domain.content.model import RequestContent, StageContent, field_text

#: Kinds of stages that generate events and read no input.
GENERATORS = frozenset({"generation"})
#: Arguments that must be the same in every stage.
CONSTANTS = ("geometry",)


def source_positions(content: RequestContent) -> list[int | None]:
    """Return, for each stage, the position of the earlier stage whose output it reads.

    None if it reads something else.
    """
    writers: dict[str, int] = {}
    positions: list[int | None] = []
    for position, stage in enumerate(content.stages):
        if stage.input_dataset:
            positions.append(writers.get(stage.input_dataset))
        else:
            positions.append(position - 1 if position else None)
        if stage.output_dataset:
            writers.setdefault(stage.output_dataset, position)
    return positions


class StageLink(NamedTuple):
    """A stage that reads the output of an earlier one, its source; positions start at 0."""

    source_position: int
    source: StageContent
    position: int
    stage: StageContent


def iterate_links(content: RequestContent) -> Iterator[StageLink]:
    """Yield each stage that reads the output of an earlier one, in order."""
    for position, source in enumerate(source_positions(content)):
        if source is not None:
            yield StageLink(source, content.stages[source], position, content.stages[position])


@rule(Severity.ERROR)
def chain(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """Each stage reads a given dataset or the output of an earlier stage."""
    writers: dict[str, int] = {}
    for position, stage in enumerate(content.stages):
        if stage.output_dataset and stage.output_dataset in writers:
            other = writers[stage.output_dataset] + 1
            yield Problem(
                f"stages.{position}.output_dataset",
                f"Stage {other} already writes this dataset. Choose another name.",
            )
        writers.setdefault(stage.output_dataset, position)
    for position, stage in enumerate(content.stages):
        path = f"stages.{position}.input_dataset"
        if stage.input_dataset:
            writer = writers.get(stage.input_dataset, -1)
        else:
            writer = -1
        if writer == position:
            yield Problem(path, "A stage cannot read its own output.")
        elif writer > position:
            yield Problem(
                path,
                (
                    f"Stage {writer + 1} writes this dataset later. Move it up or read another "
                    "dataset."
                ),
            )
    for position, (before, stage) in enumerate(pairwise(content.stages), start=1):
        if not stage.input_dataset and not before.output_dataset:
            yield Problem(
                f"stages.{position}.input_dataset",
                (
                    "This stage has nothing to read. Set its input, or the output of stage "
                    f"{position}."
                ),
            )


@rule(Severity.ERROR)
def counts(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """No stage has more jobs than events, or reads more events than its source stage writes."""
    for path, stage in stages(content):
        if stage.events and stage.jobs and stage.jobs > stage.events:
            yield Problem(
                f"{path}.jobs",
                f"More jobs than events ({stage.events:,}). Reduce the number of jobs.",
            )
    for position, (before, stage) in enumerate(pairwise(content.stages), start=1):
        reads_before = stage.input_dataset in ("", before.output_dataset)
        if reads_before and stage.events and before.events and stage.events > before.events:
            yield Problem(
                f"stages.{position}.events",
                f"Stage {position} writes only {before.events:,} events.",
            )


@rule(Severity.ERROR)
def output_type(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """The input data type of a stage is the output data type of its source stage."""
    for source, before, position, stage in iterate_links(content):
        writes = text(before, "output_type")
        reads = text(stage, "input_type")
        if writes and reads and writes != reads:
            path = f"stages.{position}.arguments.input_type"
            fix = Fix(f"Read {writes}", {path: writes})
            yield Problem(
                path, f"Stage {source + 1} writes {writes}, but this stage reads {reads}.", fix
            )


@rule(Severity.WARNING)
def event_totals(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """A stage reads all events of its source stage."""
    for source, before, position, stage in iterate_links(content):
        if not before.events or not stage.events:
            continue
        writes = round(before.events * (number(before, "passing") or 1))
        if stage.events < writes:
            path = f"stages.{position}.events"
            yield Problem(
                path,
                f"Stage {source + 1} writes {writes:,} events, but this stage reads "
                f"{stage.events:,}: "
                f"{writes - stage.events:,} events would be unused.",
                Fix(f"Read {field_text('events', writes)}", {path: writes}),
            )


@rule(Severity.ERROR)
def generation_has_no_input(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """A generation stage comes first and reads no dataset."""
    for position, stage in enumerate(content.stages):
        path = f"stages.{position}.input_dataset"
        if stage.kind in GENERATORS and stage.input_dataset:
            fix = Fix("Clear the input", {path: ""})
            yield Problem(path, "A generation stage reads no dataset. Clear the input.", fix)
        elif stage.kind in GENERATORS and position:
            yield Problem(
                f"stages.{position}.kind", "A generation stage must come first. Move it up."
            )


@rule(Severity.ERROR)
def first_stage_has_input(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """The first stage has an input dataset if it requires an input data type."""
    first = content.stages[0] if content.stages else None
    if first is None or first.kind in GENERATORS or first.input_dataset:
        return
    declared = content.workflow.stage(first.kind)
    type_argument = declared.argument("input_type")
    input_argument = declared.argument("input_dataset")
    if type_argument and type_argument.required and input_argument and not input_argument.required:
        yield Problem("stages.0.input_dataset", "The first stage needs an input dataset.")


@rule(Severity.WARNING)
def same_release(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """All stages use the same release."""
    releases = [stage.release for stage in content.stages if stage.release]
    if not releases:
        return
    for path, stage in stages(content):
        if stage.release and stage.release != releases[0]:
            fix = Fix(f"Use {releases[0]}", {f"{path}.release": releases[0]})
            yield Problem(
                f"{path}.release",
                f"The first stage uses {releases[0]}. Is this release intended?",
                fix,
            )


@rule(Severity.WARNING)
def same_geometry(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """All stages use the same detector geometry."""
    for name in CONSTANTS:
        first = ""
        for path, stage in stages(content):
            value = text(stage, name)
            first = first or value
            if value and value != first:
                field = f"{path}.arguments.{name}"
                fix = Fix(f"Use {first}", {field: first})
                yield Problem(
                    field, f"An earlier stage uses {first}, but this stage uses {value}.", fix
                )
