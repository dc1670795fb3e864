"""Rules without which a draft cannot be saved."""

from collections.abc import Iterator
from typing import Any

from apps.production.domain.checks.base import Problem, Severity, rule, stages
from apps.production.domain.checks.facts import Facts
from apps.production.domain.content.model import MAX_STAGES, RequestContent
from apps.production.domain.types.arguments import Argument
from apps.production.domain.types.declaration import StageType, Workflow
from apps.production.domain.types.fields import CORE, REQUEST
from apps.production.enums import RequestedPriority


def unknown_service(slug: str) -> str:
    """Return what is said of a service that is not there."""
    return f"The portal knows no service “{slug[:64]}”."


def _fields(content: RequestContent, kind: type) -> Iterator[tuple[str, Argument, Any]]:
    """Yield each field of request and stages that holds such a value, with its path and definition."""
    found = [(name, argument, getattr(content, name)) for name, argument in REQUEST.items()]
    for path, stage in stages(content):
        found += [(f"{path}.{name}", argument, getattr(stage, name)) for name, argument in CORE.items()]
    return (one for one in found if isinstance(one[2], kind))


@rule(Severity.STOP)
def lengths(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """No text is longer than its limit or holds a NUL."""
    for path, argument, text in _fields(content, str):
        if problem := argument.kind.problem(text) or argument.excess(text):
            yield Problem(path, problem)


@rule(Severity.STOP)
def stage_count(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """The chain is not longer than the portal takes."""
    if len(content.stages) > MAX_STAGES:
        yield Problem("stages", f"At most {MAX_STAGES} stages; this request has {len(content.stages):,}. Split it.")


@rule(Severity.STOP)
def number_ranges(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """Numbers are positive and not absurd."""
    for path, argument, number in _fields(content, int):
        if problem := argument.excess(number):
            yield Problem(path, problem)


@rule(Severity.STOP)
def known_values(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """Choices and services are ones that exist."""
    if content.requested_priority not in RequestedPriority.values:
        yield Problem("requested_priority", f"Choose one of: {', '.join(RequestedPriority.values)}.")
    for path, stage in stages(content):
        for slug in stage.services:
            if slug not in facts.services:
                yield Problem(f"{path}.services", unknown_service(slug))


@rule(Severity.STOP)
def arguments(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """Stages and arguments are those that the workflow declares, and each value is of its type."""
    places: list[tuple[str, Any, Workflow | StageType]] = [("arguments", content.arguments, content.workflow)]
    for path, stage in stages(content):
        if content.workflow.knows(stage.kind):
            places.append((f"{path}.arguments", stage.arguments, content.workflow.stage(stage.kind)))
            continue
        kinds = ", ".join(kind.key for kind in content.workflow.stages)
        yield Problem(f"{path}.kind", f"{content.workflow.title} has no stage “{stage.kind[:40]}”; it has: {kinds}.")
    for path, given, declared in places:
        for name, value in given.items():
            argument = declared.argument(name)
            problem = argument.problem(value) if argument and value not in ("", None) else ""
            if problem or argument is None:
                yield Problem(f"{path}.{name[:40]}", problem or f"{content.workflow.title} has no such argument.")
