"""What must be right in a request before it is saved, and before it is submitted. Knows nothing of the database."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from itertools import pairwise
from typing import Any

from apps.production.content import (
    MAX_LENGTH,
    MAX_STAGES,
    NUMBERS,
    STAGE_MAX,
    STAGE_MAX_LENGTH,
    RequestContent,
    StageContent,
)
from apps.production.enums import ABOVE_NORMAL, RequestedPriority
from apps.production.workflows.arguments import Argument
from apps.production.workflows.declaration import CORE

Problems = dict[str, list[str]]


@dataclass(frozen=True)
class Facts:
    """What a check may know besides the request."""

    today: date
    services: frozenset[str]


@dataclass(frozen=True)
class Problem:
    """One thing to mend: the field's path, such as `stages.0.memory_bytes`, and what to do."""

    path: str
    message: str


Check = Callable[[RequestContent, Facts], Iterator[Problem]]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def unknown_service(slug: str) -> str:
    """Return what is said of a service that is not there."""
    return f"The portal knows no service “{slug[:64]}”."


def check_shape(content: RequestContent, facts: Facts) -> Problems:
    """Return what cannot even be stored as a draft: too long, too large, unknown."""
    return _collect(SHAPE_CHECKS, content, facts)


def check_content(content: RequestContent, facts: Facts) -> Problems:
    """Return everything that stands between this request and its submission, all at once."""
    return _collect(SHAPE_CHECKS + CHECKS, content, facts)


def _collect(checks: tuple[Check, ...], content: RequestContent, facts: Facts) -> Problems:
    problems: Problems = {}
    for check in checks:
        for problem in check(content, facts):
            messages = problems.setdefault(problem.path, [])
            if problem.message not in messages:
                messages.append(problem.message)
    return problems


def _stages(content: RequestContent) -> Iterator[tuple[str, StageContent]]:
    for position, stage in enumerate(content.stages):
        yield f"stages.{position}", stage


def lengths(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """No text is longer than its limit or holds a NUL."""
    places = [(name, getattr(content, name), limit) for name, limit in MAX_LENGTH.items()]
    for path, stage in _stages(content):
        places += [(f"{path}.{name}", getattr(stage, name), limit) for name, limit in STAGE_MAX_LENGTH.items()]
    for path, text, limit in places:
        if len(text) > limit:
            yield Problem(path, f"At most {limit:,} characters; this has {len(text):,}.")
        if "\0" in text:
            yield Problem(path, "Text cannot hold the character NUL.")


def stage_count(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """The chain is not longer than the portal takes."""
    if len(content.stages) > MAX_STAGES:
        yield Problem("stages", f"At most {MAX_STAGES} stages; this request has {len(content.stages):,}. Split it.")


def number_ranges(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """Numbers are positive and not absurd."""
    for path, stage in _stages(content):
        for name in NUMBERS:
            value = getattr(stage, name)
            if value is not None and value <= 0:
                yield Problem(f"{path}.{name}", "Must be more than zero.")
            elif value is not None and value > STAGE_MAX[name]:
                yield Problem(f"{path}.{name}", f"At most {_limit(name)}.")


def _limit(name: str) -> str:
    words = {"memory_bytes": "16 TB", "wall_seconds": "30 days"}
    return words.get(name) or f"{STAGE_MAX[name]:,}"


def known_values(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """Choices and services are ones that exist."""
    if content.requested_priority not in RequestedPriority.values:
        yield Problem("requested_priority", f"Choose one of: {', '.join(RequestedPriority.values)}.")
    for path, stage in _stages(content):
        for slug in stage.services:
            if slug not in facts.services:
                yield Problem(f"{path}.services", unknown_service(slug))


def arguments(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """Stages and arguments are those that the workflow declares, and each value is of its type."""
    names = {argument.name for argument in content.workflow.arguments}
    given = [("arguments", name) for name in content.arguments if name not in names]
    for path, stage in _stages(content):
        if not content.workflow.knows(stage.kind):
            kinds = ", ".join(kind.key for kind in content.workflow.stages)
            yield Problem(
                f"{path}.kind", f"{content.workflow.title} has no stage “{stage.kind[:40]}”; it has: {kinds}."
            )
        else:
            known = {argument.name for argument in content.workflow.stage(stage.kind).arguments}
            given += [(f"{path}.arguments", name) for name in stage.arguments if name not in known]
    for path, name in given:
        yield Problem(f"{path}.{name[:40]}", f"{content.workflow.title} has no such argument.")
    for path, argument, value in _declared(content):
        extra = argument.name not in CORE
        if extra and value not in ("", None) and (problem := argument.problem(value)):
            yield Problem(path, problem)


def required(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """Every ingredient is there."""
    needed = {
        "title": "Give it a title that others will recognise.",
        "purpose": "Say what it is for: the analysis, and who waits for it.",
        "deadline": "Say by which day it is needed.",
    }
    for name, message in needed.items():
        if not getattr(content, name):
            yield Problem(name, message)
    if not content.stages:
        yield Problem("stages", "Add at least one stage.")
    for path, argument, value in _declared(content):
        if argument.required and value in ("", None, [], ()):
            yield Problem(path, argument.missing or f"{argument.title} is needed.")


def _declared(content: RequestContent) -> Iterator[tuple[str, Argument, Any]]:
    """Yield every argument that the workflow declares, with its path and what is given for it."""
    for argument in content.workflow.arguments:
        yield f"arguments.{argument.name}", argument, content.arguments.get(argument.name)
    for path, stage in _stages(content):
        for argument in content.workflow.stage(stage.kind).arguments:
            here = f"{path}.{argument.name}" if argument.name in CORE else f"{path}.arguments.{argument.name}"
            yield here, argument, stage.value(argument.name)


def deadline_ahead(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """The deadline can still be met."""
    if content.deadline and content.deadline <= facts.today:
        yield Problem("deadline", "The deadline must be later than today.")


def priority_reason(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """Who asks to go before others says why."""
    if content.requested_priority in ABOVE_NORMAL and not content.priority_reason.strip():
        yield Problem("priority_reason", f"A priority of {content.requested_priority} needs a reason.")


def stage_names(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """Names are unique and can stand in a job's environment."""
    first: dict[str, int] = {}
    for position, stage in enumerate(content.stages):
        path = f"stages.{position}.name"
        if stage.name and not _NAME.fullmatch(stage.name):
            yield Problem(path, "Letters, digits, “.”, “_” and “-” only: jobs carry this name in their environment.")
        if stage.name and stage.name in first:
            yield Problem(path, f"Stage {first[stage.name] + 1} has this name already.")
        first.setdefault(stage.name, position)


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


def counts(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """Jobs and events fit each other, and a stage does not read more than the one before writes."""
    for path, stage in _stages(content):
        if stage.events and stage.jobs and stage.jobs > stage.events:
            yield Problem(f"{path}.jobs", f"More jobs than events ({stage.events:,}): some would have nothing to do.")
    for position, (before, stage) in enumerate(pairwise(content.stages), start=1):
        reads_before = stage.input_dataset in ("", before.output_dataset)
        if reads_before and stage.events and before.events and stage.events > before.events:
            yield Problem(
                f"stages.{position}.events", f"Stage {position} writes only {before.events:,} events for it to read."
            )


#: These keep a draft from being saved.
SHAPE_CHECKS: tuple[Check, ...] = (lengths, stage_count, number_ranges, known_values, arguments)
#: These keep it from being submitted.
CHECKS: tuple[Check, ...] = (required, deadline_ahead, priority_reason, stage_names, chain, counts)
