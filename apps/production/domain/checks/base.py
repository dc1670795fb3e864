"""The check interface: a named rule reads a request and known facts, and yields problems to fix."""

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from django.db.models import TextChoices

from apps.production.domain.checks.facts import Facts
from apps.production.domain.content.model import RequestContent, StageContent

C = TypeVar("C", RequestContent, StageContent)

log = logging.getLogger(__name__)


class Severity(TextChoices):
    """What a problem blocks, most severe first."""

    INVALID = "invalid", "cannot be saved"
    ERROR = "error", "must be fixed"
    WARNING = "warning", "should be fixed"


@dataclass(frozen=True)
class Fix:
    """A change that fixes a problem: the label of its button, and the new values by field path."""

    label: str
    values: Mapping[str, Any]

    def applied_to(self, content: RequestContent) -> RequestContent:
        """Return the content with this change. Raises `LookupError` if the stage does not exist."""
        for path, value in self.values.items():
            content = _with(content, path, value)
        return content


@dataclass(frozen=True)
class Problem:
    """One problem to fix: the path of the field, such as `stages.0.memory_bytes`, and what to do."""

    path: str
    message: str
    fix: Fix | None = None


Check = Callable[[RequestContent, Facts], Iterator[Problem]]


@dataclass(frozen=True)
class Rule:
    """A check with its severity and a one-line description of what it requires."""

    severity: Severity
    description: str
    check: Check = field(compare=False)

    def __call__(self, content: RequestContent, facts: Facts) -> Iterator[Problem]:
        return self.check(content, facts)


def rule(severity: Severity) -> Callable[[Check], Rule]:
    """Turn a function into a rule. The first line of its docstring becomes the description."""

    def make(check: Check) -> Rule:
        return Rule(severity, (check.__doc__ or "").partition("\n")[0], check)

    return make


@dataclass(frozen=True)
class Finding:
    """A problem, with the name and severity of the rule that found it."""

    rule: str
    severity: Severity
    problem: Problem

    @property
    def path(self) -> str:
        return self.problem.path

    @property
    def message(self) -> str:
        return self.problem.message

    @property
    def fix(self) -> Fix | None:
        return self.problem.fix

    @property
    def blocks(self) -> bool:
        """Whether this finding prevents submission."""
        return self.severity != Severity.WARNING


def run(rules: Mapping[str, Rule], content: RequestContent, facts: Facts) -> list[Finding]:
    """Run all rules and return their findings, most severe first. A rule that raises is reported as a warning."""
    found: list[Finding] = []
    for name, one in rules.items():
        try:
            found += [Finding(name, one.severity, problem) for problem in one(content, facts)]
        except Exception as error:  # a third-party rule may raise anything; the other rules still run
            log.exception("check %s failed", name)
            broken = Problem("", f"The check “{name}” failed to run ({type(error).__name__}).")
            found.append(Finding(name, Severity.WARNING, broken))
    order = list(Severity)
    return sorted(found, key=lambda finding: order.index(finding.severity))


def stages(content: RequestContent) -> Iterator[tuple[str, StageContent]]:
    """Yield each stage with its path."""
    for position, stage in enumerate(content.stages):
        yield f"stages.{position}", stage


def _with(content: RequestContent, path: str, value: Any) -> RequestContent:
    parts = path.split(".")
    if parts[0] != "stages":
        return _put(content, parts, value)
    rows = list(content.stages)
    rows[int(parts[1])] = _put(rows[int(parts[1])], parts[2:], value)
    return replace(content, stages=tuple(rows))


def _put(one: C, parts: list[str], value: Any) -> C:
    if parts[0] != "arguments":
        return replace(one, **{parts[0]: value})
    rest = {name: old for name, old in one.arguments.items() if name != parts[1]}
    return replace(one, arguments=rest if value in (None, "") else {**rest, parts[1]: value})
