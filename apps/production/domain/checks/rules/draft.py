"""Rules that a draft must pass to be saved."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from apps.production.domain.checks.base import Facts, Problem, Severity, rule, stages
from apps.production.domain.content.model import MAX_STAGES, RequestContent
from apps.production.domain.types.arguments import Argument
from apps.production.domain.types.declaration import StageType, Workflow
from apps.production.domain.types.fields import CORE, REQUEST
from apps.production.enums import RequestedPriority


class _Field(NamedTuple):
    path: str
    argument: Argument
    value: Any


def _fields(content: RequestContent, kind: type) -> Iterator[_Field]:
    """Yield the fields with a value of this type, as declared for all workflow types."""
    for name, argument in REQUEST.items():
        value = getattr(content, name)
        if isinstance(value, kind):
            yield _Field(name, argument, value)

    for path, stage in stages(content):
        for name, argument in CORE.items():
            value = getattr(stage, name)
            if isinstance(value, kind):
                yield _Field(f"{path}.{name}", argument, value)


@rule(Severity.INVALID)
def lengths(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """No text exceeds its maximum length or contains a NUL character."""
    for field in _fields(content, str):
        argument = field.argument
        if problem := argument.kind.problem(field.value) or argument.excess(field.value):
            yield Problem(field.path, problem)


@rule(Severity.INVALID)
def stage_count(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """The request does not exceed the maximum number of stages."""
    if len(content.stages) > MAX_STAGES:
        yield Problem(
            "stages",
            (
                f"A request has at most {MAX_STAGES} stages. This one has "
                f"{len(content.stages):,}. Split it."
            ),
        )


@rule(Severity.INVALID)
def number_ranges(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """Numbers are positive and within their limits."""
    for field in _fields(content, int):
        if problem := field.argument.excess(field.value):
            yield Problem(field.path, problem)


@rule(Severity.INVALID)
def known_values(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """Choices and services exist."""
    if content.requested_priority not in RequestedPriority.values:
        yield Problem(
            "requested_priority", f"Choose one of: {', '.join(RequestedPriority.values)}."
        )
    for path, stage in stages(content):
        for slug in stage.services:
            if slug not in facts.services:
                yield Problem(f"{path}.services", f"Service “{slug[:64]}” does not exist.")


@rule(Severity.INVALID)
def arguments(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """The workflow type declares every stage and argument, and each value has the declared type."""
    places: list[tuple[str, Any, Workflow | StageType]] = [
        ("arguments", content.arguments, content.workflow)
    ]
    for path, stage in stages(content):
        if content.workflow.knows(stage.kind):
            places.append(
                (f"{path}.arguments", stage.arguments, content.workflow.stage(stage.kind))
            )
            continue
        kinds = ", ".join(kind.key for kind in content.workflow.stages)
        yield Problem(
            f"{path}.kind",
            f"{content.workflow.title} has no stage “{stage.kind[:40]}”. Choose one of: {kinds}.",
        )

    for path, values, declared in places:
        for name, value in values.items():
            argument = declared.argument(name)
            problem = ""
            if argument and value not in ("", None):
                problem = argument.problem(value)
            if problem or argument is None:
                yield Problem(
                    f"{path}.{name[:40]}",
                    problem or f"{content.workflow.title} has no argument “{name[:40]}”.",
                )
