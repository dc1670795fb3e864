"""Rules for what a request meets: services, datasets, people, and other requests."""

from collections.abc import Iterator
from datetime import UTC, datetime, time
from functools import lru_cache

from apps.production.domain.checks.base import Mend, Problem, Severity, rule, stages
from apps.production.domain.checks.declared import number, text
from apps.production.domain.checks.facts import Facts
from apps.production.domain.content.model import RequestContent
from apps.production.domain.types.arguments import runs_in

#: Run numbers that new events get; nobody else may have them.
NEW_RUNS = "run_block"


@rule(Severity.SHOULD)
def services_up(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """The services that stages need are up."""
    for path, stage in stages(content):
        for slug in stage.services:
            service = facts.service_states.get(slug)
            if service and service.state in {"down", "degraded", "maintenance"}:
                yield Problem(f"{path}.services", f"{service.name} is {service.state} now.")


@rule(Severity.SHOULD)
def no_downtime(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """No downtime of a needed service is planned while the request is expected to run."""
    finish = facts.estimate.finish
    last = content.deadline or (finish[2] if finish else None)
    for path, stage in stages(content):
        for slug in stage.services:
            service = facts.service_states.get(slug)
            for window in service.windows if service else ():
                if last is None or window.starts_at <= datetime.combine(last, time.max, UTC):
                    yield Problem(
                        f"{path}.services",
                        f"{service.name if service else slug}: “{window.title[:80]}” is planned from "
                        f"{window.starts_at:%-d %b %H:%M} to {window.ends_at:%-d %b %H:%M} UTC.",
                    )


@rule(Severity.MUST)
def run_block_free(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """No other request of the experiment has these run numbers for new events."""
    for other, common in _same_runs(content, facts, NEW_RUNS):
        yield Problem(f"arguments.{NEW_RUNS}", f"{other} has {common} already: take others.")


@rule(Severity.SHOULD)
def runs_not_done_before(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """No other request of the experiment reads the same runs with the same release and configuration."""
    first = content.stages[0] if content.stages else None
    alike = {
        o.key for o in facts.others if first and (o.release, o.configuration) == (first.release, first.configuration)
    }
    for argument in content.workflow.arguments:
        if argument.type == "runs" and argument.name != NEW_RUNS:
            for other, common in _same_runs(content, facts, argument.name):
                if other in alike:
                    yield Problem(
                        f"arguments.{argument.name}", f"{other} has {common} with the same release and configuration."
                    )


def _same_runs(content: RequestContent, facts: Facts, name: str) -> Iterator[tuple[str, str]]:
    mine = _ranges(text(content, name))
    for other in facts.others if mine else ():
        common = [
            (max(a, c), min(b, d))
            for a, b in mine
            for c, d in _ranges(other.runs.get(name, ""))
            if max(a, c) <= min(b, d)
        ]
        if common:
            a, b = common[0]
            more = f" and {len(common) - 1} more" if len(common) > 1 else ""
            yield other.key, f"run {a}{more}" if a == b else f"runs {a}-{b}{more}"


@lru_cache(maxsize=20_000)  # those of all earlier requests are asked for at every check
def _ranges(runs: str) -> tuple[tuple[int, int], ...]:
    try:
        return tuple(runs_in(runs)) if runs else ()
    except ValueError:
        return ()


@rule(Severity.MUST)
def seeds_free(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """No other request with the same generator configuration has any of these seeds."""
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
            f"{other.key} has seeds from {other.first_seed:,} for {other.jobs:,} jobs of {stage.configuration}: "
            "the same events would be made twice.",
            Mend(f"Begin with {free:,}", {"arguments.first_seed": free}),
        )


@rule(Severity.SHOULD)
def title_not_taken(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """No other request of the experiment has the same title."""
    title = content.title.strip().casefold()
    for other in facts.others:
        if title and other.title.strip().casefold() == title:
            yield Problem("title", f"{other.key} has this title too. Is it asked for twice?")


@rule(Severity.SHOULD)
def output_not_taken(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """No other request writes a dataset of the same name."""
    for path, stage in stages(content):
        if key := facts.written_by.get(stage.output_dataset):
            yield Problem(
                f"{path}.output_dataset", f"{key} writes this dataset. If this adds to it, say so in the purpose."
            )


@rule(Severity.SHOULD)
def catalogue_answers(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """The dataset catalogue can be asked."""
    if facts.catalogue_fault:
        yield Problem("stages", f"Datasets could not be checked: {facts.catalogue_fault}")


@rule(Severity.SHOULD)
def output_is_new(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """The catalogue has no dataset yet of the name that a stage writes."""
    for path, stage in stages(content):
        found = (facts.datasets or {}).get(stage.output_dataset)
        if found:
            holds = "" if found.events is None else f" with {found.events:,} events"
            yield Problem(f"{path}.output_dataset", f"The catalogue has this dataset{holds}: it would be added to.")


@rule(Severity.MUST)
def input_exists(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """A dataset that a stage reads is in the catalogue, or written by a request."""
    own = {stage.output_dataset for stage in content.stages}
    for path, stage in stages(content):
        name = stage.input_dataset
        if facts.datasets is not None and name and name not in own | facts.datasets.keys() | facts.written_by.keys():
            why = "The catalogue has no dataset of this name, and no request writes it."
            if name in facts.defining:
                fault = facts.defining[name]
                why = f"The portal could not define it yet: {fault}" if fault else "The portal defines it in a moment."
            yield Problem(f"{path}.input_dataset", why)


@rule(Severity.MUST)
def input_not_empty(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """A dataset that a stage reads has files and events."""
    for path, stage in stages(content):
        found = (facts.datasets or {}).get(stage.input_dataset)
        if found and 0 in {found.files, found.events} and stage.input_dataset not in facts.written_by:
            yield Problem(f"{path}.input_dataset", "This dataset is empty by the catalogue.")


@rule(Severity.SHOULD)
def input_counts(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """Events and files to read are those that the dataset has."""
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
                    f"The catalogue counts {there:,} {what} in the input.",
                    Mend(f"Take {there:,}", {place: there}),
                )


@rule(Severity.SHOULD)
def contact_is_member(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """Who made the request is still a liaison of the experiment."""
    if facts.contact and not facts.contact.is_liaison:
        yield Problem(
            "purpose", f"{facts.contact.username}, who made this, is no liaison any more: name who answers for it."
        )
