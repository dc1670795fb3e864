"""The arguments that a workflow type declares, with their values in a request."""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from apps.production.domain.checks.base import stages
from apps.production.domain.content.model import RequestContent, StageContent
from apps.production.domain.types.arguments import Argument, Runs, runs_in
from apps.production.domain.types.fields import CORE


class DeclaredArgument(NamedTuple):
    """An argument that the type of a request declares, with its value and the path to it."""

    path: str
    argument: Argument
    value: Any


def declared_arguments(content: RequestContent) -> Iterator[DeclaredArgument]:
    """Yield every declared argument, those of the request first."""
    for argument in content.workflow.arguments:
        value = content.arguments.get(argument.name)
        yield DeclaredArgument(f"arguments.{argument.name}", argument, value)
    for path, stage in stages(content):
        for argument in content.workflow.stage(stage.kind).arguments:
            if argument.name in CORE:
                here = f"{path}.{argument.name}"
            else:
                here = f"{path}.arguments.{argument.name}"
            yield DeclaredArgument(here, argument, stage.value(argument.name))


def text(content: RequestContent | StageContent, name: str) -> str:
    """Return a text argument, or an empty string if it is missing or has another type."""
    value = content.arguments.get(name)
    return value.strip() if isinstance(value, str) else ""


def number(content: RequestContent | StageContent, name: str) -> float | None:
    """Return a numeric argument greater than zero, or None."""
    value = content.arguments.get(name)
    if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
        return value
    return None


def runs(content: RequestContent | StageContent, name: str) -> Runs:
    """Return the run numbers in an argument; empty if it is missing or cannot be read."""
    return ranges(text(content, name))


# Cached, because every check parses the runs of all earlier requests.
@lru_cache(maxsize=20_000)
def ranges(runs: str) -> Runs:
    try:
        return tuple(runs_in(runs)) if runs else ()
    except ValueError:
        return ()
