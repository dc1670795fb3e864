"""Rules that compare a request with services, datasets, people and other requests."""

from collections.abc import Iterator
from datetime import UTC, datetime, time

from apps.production.domain.checks.base import Facts, Fix, Problem, Severity, rule, stage_rule, stages
from apps.production.domain.checks.rules.declared import number, ranges, runs
from apps.production.domain.content.model import RequestContent, StageContent

#: The argument with the run numbers of new events; no two requests may share them.
NEW_RUNS = "run_block"


@stage_rule(Severity.WARNING)
def services_up(stage: StageContent, facts: Facts) -> Iterator[Problem]:
    """The services that the stages need are up."""
    for slug in stage.services:
        service = facts.service_states.get(slug)
        if service and service.state in {"down", "degraded", "maintenance"}:
            yield Problem("services", f"{service.name} is {service.state}.")


@rule(Severity.WARNING)
def no_downtime(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """No downtime of a required service is planned before the deadline."""
    finish = facts.estimate.finish
    last = content.deadline or (finish[2] if finish else None)
    for path, stage in stages(content):
        for slug in stage.services:
            service = facts.service_states.get(slug)
            for window in service.windows if service else ():
                if last is None or window.starts_at <= datetime.combine(last, time.max, UTC):
                    yield Problem(
                        f"{path}.services",
                        f"{service.name if service else slug}: “{window.title[:80]}” is scheduled from "
                        f"{window.starts_at:%-d %b %H:%M} to {window.ends_at:%-d %b %H:%M} UTC.",
                    )


@rule(Severity.ERROR)
def run_numbers_unique(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """No other request of the experiment uses these run numbers for new events."""
    for other, common in _same_runs(content, facts, NEW_RUNS):
        yield Problem(f"arguments.{NEW_RUNS}", f"{other} already uses {common}. Choose other runs.")


@rule(Severity.WARNING)
def runs_not_processed(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """No other request of the experiment processes these runs with the same release and configuration."""
    first = content.stages[0] if content.stages else None
    alike = {
        o.key for o in facts.others if first and (o.release, o.configuration) == (first.release, first.configuration)
    }
    for argument in content.workflow.arguments:
        if argument.type == "runs" and argument.name != NEW_RUNS:
            for other, common in _same_runs(content, facts, argument.name):
                if other in alike:
                    yield Problem(
                        f"arguments.{argument.name}",
                        f"{other} processes {common} with the same release and configuration.",
                    )


def _same_runs(content: RequestContent, facts: Facts, name: str) -> Iterator[tuple[str, str]]:
    mine = runs(content, name)
    for other in facts.others if mine else ():
        common = [
            (max(a, c), min(b, d))
            for a, b in mine
            for c, d in ranges(other.runs.get(name, ""))
            if max(a, c) <= min(b, d)
        ]
        if common:
            a, b = common[0]
            more = f" and {len(common) - 1} more" if len(common) > 1 else ""
            yield other.key, f"run {a}{more}" if a == b else f"runs {a}-{b}{more}"


@rule(Severity.ERROR)
def seeds_unique(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """No other request with the same generator configuration uses these seeds."""
    first, stage = number(content, "first_seed"), content.stages[0] if content.stages else None
    if not first or stage is None or not stage.configuration:
        return
    last = first + (stage.jobs or 1) - 1
    taken = [o for o in facts.others if o.first_seed and o.configuration == stage.configuration]
    clash = [o for o in taken if o.first_seed and o.first_seed <= last and first <= o.first_seed + max(o.jobs, 1) - 1]
    free = max((o.first_seed + max(o.jobs, 1) for o in taken if o.first_seed), default=0)
    for other in clash:
        yield Problem(
            "arguments.first_seed",
            f"{other.key} uses {other.jobs:,} seeds from {other.first_seed:,} with {stage.configuration}. "
            "The same events would be generated twice.",
            Fix(f"Start with {free:,}", {"arguments.first_seed": free}),
        )


@rule(Severity.WARNING)
def title_unique(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """No other request of the experiment has the same title."""
    title = content.title.strip().casefold()
    for other in facts.others:
        if title and other.title.strip().casefold() == title:
            yield Problem("title", f"{other.key} has the same title. Is this a duplicate?")


@stage_rule(Severity.WARNING)
def output_unique(stage: StageContent, facts: Facts) -> Iterator[Problem]:
    """No other request writes to the same dataset."""
    if key := facts.written_by.get(stage.output_dataset):
        yield Problem("output_dataset", f"{key} writes to this dataset. If you add to it, say so in the purpose.")


@rule(Severity.WARNING)
def catalogue_available(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """The dataset catalogue is available."""
    if facts.catalogue_fault:
        yield Problem("stages", f"Datasets could not be checked: {facts.catalogue_fault}")


@stage_rule(Severity.WARNING)
def output_is_new(stage: StageContent, facts: Facts) -> Iterator[Problem]:
    """The catalogue has no dataset with the name of an output yet."""
    found = (facts.datasets or {}).get(stage.output_dataset)
    if found:
        holds = "" if found.events is None else f" with {found.events:,} events"
        yield Problem("output_dataset", f"This dataset already exists{holds}. The output would be added to it.")


@rule(Severity.ERROR)
def input_exists(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """An input dataset is in the catalogue or written by a request."""
    own = {stage.output_dataset for stage in content.stages}
    for path, stage in stages(content):
        name = stage.input_dataset
        if facts.datasets is not None and name and name not in own | facts.datasets.keys() | facts.written_by.keys():
            why = "No dataset of this name is in the catalogue, and no request writes it."
            if name in facts.defining:
                fault = facts.defining[name]
                why = f"The portal could not define it yet: {fault}" if fault else "The portal will define it soon."
            yield Problem(f"{path}.input_dataset", why)


@stage_rule(Severity.ERROR)
def input_not_empty(stage: StageContent, facts: Facts) -> Iterator[Problem]:
    """An input dataset has files and events."""
    found = (facts.datasets or {}).get(stage.input_dataset)
    if found and 0 in {found.files, found.events} and stage.input_dataset not in facts.written_by:
        yield Problem("input_dataset", "This dataset is empty in the catalogue.")


@rule(Severity.WARNING)
def input_counts(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """The numbers of events and files to read match the input dataset."""
    for path, stage in stages(content):
        found = (facts.datasets or {}).get(stage.input_dataset)
        if not found or content.workflow.key == "keep_up":
            continue
        asked: list[tuple[str, str, float | None, int | None]] = []
        asked.append(("events", f"{path}.events", stage.events, found.events))
        asked.append(("files", f"{path}.arguments.files", number(stage, "files"), found.files))
        for what, place, mine, there in asked:
            if mine and there and mine != there:
                yield Problem(
                    place,
                    f"The input dataset has {there:,} {what} in the catalogue.",
                    Fix(f"Use {there:,}", {place: there}),
                )


@rule(Severity.WARNING)
def contact_is_member(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """The author of the request is still a liaison of the experiment."""
    if facts.contact and not facts.contact.is_liaison:
        yield Problem(
            "purpose", f"{facts.contact.username}, the author, is no longer a liaison. Name a contact in the purpose."
        )
