"""Rules without which a draft cannot be saved."""

from collections.abc import Iterator

from apps.production.domain.checks.base import Problem, Severity, rule, stages
from apps.production.domain.checks.declared import declared
from apps.production.domain.checks.facts import Facts
from apps.production.domain.content.model import RequestContent
from apps.production.domain.types.declaration import CORE
from apps.production.enums import RequestedPriority
from apps.production.limits import MAX_LENGTH, MAX_STAGES, NUMBERS, STAGE_MAX, STAGE_MAX_LENGTH


def unknown_service(slug: str) -> str:
    """Return what is said of a service that is not there."""
    return f"The portal knows no service “{slug[:64]}”."


@rule(Severity.STOP)
def lengths(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """No text is longer than its limit or holds a NUL."""
    places = [(name, getattr(content, name), limit) for name, limit in MAX_LENGTH.items()]
    for path, stage in stages(content):
        places += [(f"{path}.{name}", getattr(stage, name), limit) for name, limit in STAGE_MAX_LENGTH.items()]
    for path, text, limit in places:
        if len(text) > limit:
            yield Problem(path, f"At most {limit:,} characters; this has {len(text):,}.")
        if "\0" in text:
            yield Problem(path, "Text cannot hold the character NUL.")


@rule(Severity.STOP)
def stage_count(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """The chain is not longer than the portal takes."""
    if len(content.stages) > MAX_STAGES:
        yield Problem("stages", f"At most {MAX_STAGES} stages; this request has {len(content.stages):,}. Split it.")


@rule(Severity.STOP)
def number_ranges(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """Numbers are positive and not absurd."""
    for path, stage in stages(content):
        for name in NUMBERS:
            value = getattr(stage, name)
            if value is not None and value <= 0:
                yield Problem(f"{path}.{name}", "Must be more than zero.")
            elif value is not None and value > STAGE_MAX[name]:
                yield Problem(f"{path}.{name}", f"At most {_limit(name)}.")


def _limit(name: str) -> str:
    words = {"memory_bytes": "16 TB", "wall_seconds": "30 days"}
    return words.get(name) or f"{STAGE_MAX[name]:,}"


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
    names = {argument.name for argument in content.workflow.arguments}
    given = [("arguments", name) for name in content.arguments if name not in names]
    for path, stage in stages(content):
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
    for path, argument, value in declared(content):
        extra = argument.name not in CORE
        if extra and value not in ("", None) and (problem := argument.problem(value)):
            yield Problem(path, problem)
