"""Rules for datasets, based on the catalogue and on the outputs of other requests."""

from collections.abc import Iterator
from dataclasses import replace

from apps.production.domain.checks.base import (
    Facts,
    Fix,
    Problem,
    Rule,
    Severity,
    rule,
    stage_rule,
    stages,
)
from apps.production.domain.checks.rules.declared import number
from apps.production.domain.content.model import RequestContent, StageContent
from apps.production.domain.content.scan import at_point, scan_of


def at_each_point(whole: Rule) -> Rule:
    """Apply a rule to the datasets of each point of a scan, with at most one problem per field."""

    def check_points(content: RequestContent, facts: Facts) -> Iterator[Problem]:
        points = scan_of(content).points
        if not points:
            yield from whole(content, facts)
            return
        seen: set[str] = set()
        for point in points:
            for problem in whole(at_point(content, point), facts):
                if problem.path not in seen:
                    message = f"At {point.label}: {problem.message}"
                    yield Problem(problem.path, message, can_stage=problem.can_stage)
                seen.add(problem.path)

    return replace(whole, check=check_points)


@at_each_point
@stage_rule(Severity.WARNING)
def output_unique(stage: StageContent, facts: Facts) -> Iterator[Problem]:
    """No other request writes to the same dataset."""
    if key := facts.written_by.get(stage.output_dataset):
        yield Problem(
            "output_dataset",
            f"{key} writes to this dataset. If you add to it, state that in the purpose.",
        )


@rule(Severity.WARNING)
def catalogue_available(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """The dataset catalogue is available."""
    if facts.catalogue_fault:
        yield Problem("stages", f"Datasets could not be checked: {facts.catalogue_fault}")


@at_each_point
@stage_rule(Severity.WARNING)
def output_is_new(stage: StageContent, facts: Facts) -> Iterator[Problem]:
    """The catalogue has no dataset with the name of an output yet."""
    dataset = (facts.datasets or {}).get(stage.output_dataset)
    if dataset:
        if dataset.events is None:
            holds = ""
        else:
            holds = f" with {dataset.events:,} events"
        yield Problem(
            "output_dataset",
            f"This dataset already exists{holds}. The output would be added to it.",
        )


@at_each_point
@rule(Severity.ERROR)
def input_exists(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """An input dataset is in the catalogue or written by a request."""
    own = {stage.output_dataset for stage in content.stages} | facts.held
    for path, stage in stages(content):
        name = stage.input_dataset
        if (
            facts.datasets is not None
            and name
            and name not in own | facts.datasets.keys() | facts.written_by.keys()
        ):
            why = "No dataset of this name is in the catalogue, and no request writes it."
            if name in facts.defining:
                fault = facts.defining[name]
                if fault:
                    why = f"The portal could not define it yet: {fault}"
                else:
                    why = "The portal will define it soon."
            yield Problem(f"{path}.input_dataset", why)


@at_each_point
@stage_rule(Severity.ERROR)
def input_not_empty(stage: StageContent, facts: Facts) -> Iterator[Problem]:
    """An input dataset has files and events."""
    dataset = (facts.datasets or {}).get(stage.input_dataset)
    if (
        dataset
        and 0 in {dataset.files, dataset.events}
        and stage.input_dataset not in facts.written_by
    ):
        yield Problem("input_dataset", "This dataset is empty in the catalogue.")


@at_each_point
@rule(Severity.WARNING)
def input_counts(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """The numbers of events and files to read match the input dataset."""
    for path, stage in stages(content):
        dataset = (facts.datasets or {}).get(stage.input_dataset)
        if not dataset or content.workflow.takes_files:
            continue

        requested = {"events": stage.events, "arguments.files": number(stage, "files")}
        catalogued = {"events": dataset.events, "arguments.files": dataset.files}
        for name, count in catalogued.items():
            if requested[name] and count and requested[name] != count:
                field = f"{path}.{name}"
                unit = name.removeprefix("arguments.")
                fix = Fix(f"Use {count:,}", {field: count})
                yield Problem(
                    field, f"The input dataset has {count:,} {unit} in the catalogue.", fix
                )


@at_each_point
@stage_rule(Severity.WARNING)
def input_has_locations(stage: StageContent, facts: Facts) -> Iterator[Problem]:
    """Each file of an input dataset has a location, as far as the catalogue knows."""
    dataset = (facts.datasets or {}).get(stage.input_dataset)
    if dataset and dataset.files_without_location and dataset.files_located:
        count = dataset.files_without_location
        verb = "has" if count == 1 else "have"
        yield Problem(
            "input_dataset",
            f"{count:,} of {dataset.files_located:,} files {verb} no location in the catalogue.",
        )


@at_each_point
@stage_rule(Severity.WARNING)
def input_on_disk(stage: StageContent, facts: Facts) -> Iterator[Problem]:
    """No file of an input dataset is on tape only, as far as the catalogue knows."""
    dataset = (facts.datasets or {}).get(stage.input_dataset)
    if dataset and dataset.files_on_tape_only and dataset.files_located:
        count = dataset.files_on_tape_only
        verb = "is" if count == 1 else "are"
        yield Problem(
            "input_dataset",
            f"{count:,} of {dataset.files_located:,} files {verb} on tape only.",
            can_stage=dataset.can_stage,
        )
