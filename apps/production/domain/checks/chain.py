"""Rules for how the stages of a chain fit each other."""

from collections.abc import Iterator
from itertools import pairwise

from apps.production.domain.checks.base import Mend, Problem, Severity, rule, stages
from apps.production.domain.checks.declared import number, text
from apps.production.domain.checks.facts import Facts
from apps.production.domain.content.model import RequestContent, StageContent, written

#: Stages that make events out of nothing, by the key of their type.
MAKERS = frozenset({"generation"})
#: What must not change along the way from the first stage to the last.
CONSTANTS = ("geometry",)


def sources(content: RequestContent) -> list[int | None]:
    """Return, for each stage, the earlier one whose output it reads; None where it reads something else."""
    writers: dict[str, int] = {}
    found: list[int | None] = []
    for position, stage in enumerate(content.stages):
        if stage.input_dataset:
            found.append(writers.get(stage.input_dataset))
        else:
            found.append(position - 1 if position else None)
        if stage.output_dataset:
            writers.setdefault(stage.output_dataset, position)
    return found


def links(content: RequestContent) -> Iterator[tuple[int, StageContent, int, StageContent]]:
    """Yield each pair of stages of which the second reads the first, with their positions."""
    for position, source in enumerate(sources(content)):
        if source is not None:
            yield source, content.stages[source], position, content.stages[position]


@rule(Severity.MUST)
def chain(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """Each stage reads what is there by then: a given dataset, or what the stage before writes."""
    writers: dict[str, int] = {}
    for position, stage in enumerate(content.stages):
        if stage.output_dataset and stage.output_dataset in writers:
            other = writers[stage.output_dataset] + 1
            yield Problem(f"stages.{position}.output_dataset", f"Stage {other} writes this dataset already.")
        writers.setdefault(stage.output_dataset, position)
    for position, stage in enumerate(content.stages):
        path = f"stages.{position}.input_dataset"
        writer = writers.get(stage.input_dataset, -1) if stage.input_dataset else -1
        if writer == position:
            yield Problem(path, "A stage cannot read its own output.")
        elif writer > position:
            yield Problem(path, f"Stage {writer + 1} writes this only later: move it up, or read something else.")
    for position, (before, stage) in enumerate(pairwise(content.stages), start=1):
        if not stage.input_dataset and not before.output_dataset:
            yield Problem(
                f"stages.{position}.input_dataset",
                f"Give an input here or an output in stage {position}: there is nothing to read.",
            )


@rule(Severity.MUST)
def counts(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """Jobs and events fit each other, and a stage does not read more than the one before writes."""
    for path, stage in stages(content):
        if stage.events and stage.jobs and stage.jobs > stage.events:
            yield Problem(f"{path}.jobs", f"More jobs than events ({stage.events:,}): some would have nothing to do.")
    for position, (before, stage) in enumerate(pairwise(content.stages), start=1):
        reads_before = stage.input_dataset in ("", before.output_dataset)
        if reads_before and stage.events and before.events and stage.events > before.events:
            yield Problem(
                f"stages.{position}.events", f"Stage {position} writes only {before.events:,} events for it to read."
            )


@rule(Severity.MUST)
def output_type(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """The type of data that a stage reads is the one that the stage before writes."""
    for source, before, position, stage in links(content):
        writes, reads = text(before, "output_type"), text(stage, "input_type")
        if writes and reads and writes != reads:
            path = f"stages.{position}.arguments.input_type"
            yield Problem(
                path,
                f"Stage {source + 1} writes {writes}, and this one reads {reads}.",
                Mend(f"Read {writes}", {path: writes}),
            )


@rule(Severity.SHOULD)
def event_totals(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """A stage that reads another one reads all of its events."""
    for source, before, position, stage in links(content):
        if not before.events or not stage.events:
            continue
        writes = round(before.events * (number(before, "passing") or 1))
        if stage.events < writes:
            path = f"stages.{position}.events"
            yield Problem(
                path,
                f"Stage {source + 1} writes {writes:,} events, and this one reads {stage.events:,}: "
                f"{writes - stage.events:,} would be made for nothing.",
                Mend(f"Read {written('events', writes)}", {path: writes}),
            )


@rule(Severity.MUST)
def maker_reads_nothing(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """A stage that makes events reads no dataset, and is the first."""
    for position, stage in enumerate(content.stages):
        path = f"stages.{position}.input_dataset"
        if stage.kind in MAKERS and stage.input_dataset:
            yield Problem(
                path, "This stage makes its events: it reads no dataset.", Mend("Empty the input", {path: ""})
            )
        elif stage.kind in MAKERS and position:
            yield Problem(f"stages.{position}.kind", "A stage that makes events comes first: move it up.")


@rule(Severity.MUST)
def first_reads_something(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """A first stage that is declared to read a type of data has a dataset to read."""
    first = content.stages[0] if content.stages else None
    if first is None or first.kind in MAKERS or first.input_dataset:
        return
    declared = content.workflow.stage(first.kind)
    asks = declared.argument("input_type")
    wants = declared.argument("input_dataset")
    if asks and asks.required and wants and not wants.required:
        yield Problem("stages.0.input_dataset", "Nothing comes before this stage: say which dataset it reads.")


@rule(Severity.SHOULD)
def one_release(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """The release is the same along the chain."""
    releases = [stage.release for stage in content.stages if stage.release]
    if not releases:
        return
    for path, stage in stages(content):
        if stage.release and stage.release != releases[0]:
            mend = Mend(f"Take {releases[0]}", {f"{path}.release": releases[0]})
            yield Problem(f"{path}.release", f"The first stage runs {releases[0]}. Is another one meant here?", mend)


@rule(Severity.SHOULD)
def one_geometry(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """The detector's geometry is the same along the chain."""
    for name in CONSTANTS:
        given = [(path, text(stage, name)) for path, stage in stages(content) if text(stage, name)]
        for path, value in given[1:]:
            if value != given[0][1]:
                here, first = f"{path}.arguments.{name}", given[0][1]
                yield Problem(
                    here, f"An earlier stage takes {first}, and this one {value}.", Mend(f"Take {first}", {here: first})
                )
