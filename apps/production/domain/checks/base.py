"""What a check is: a named rule that looks at a request and what is known besides, and yields what to mend."""

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
    """What a problem stands in the way of, gravest first."""

    STOP = "stop", "cannot be saved"
    MUST = "must", "must be mended"
    SHOULD = "should", "should be mended"


@dataclass(frozen=True)
class Mend:
    """A change that mends a problem: what the button says, and the new value by the path of its field."""

    label: str
    values: Mapping[str, Any]

    def applied_to(self, content: RequestContent) -> RequestContent:
        """Return the content as it is with the change. Raises `LookupError` for a stage that is not there."""
        for path, value in self.values.items():
            content = _with(content, path, value)
        return content


@dataclass(frozen=True)
class Problem:
    """One thing to mend: the field's path, such as `stages.0.memory_bytes`, and what to do."""

    path: str
    message: str
    mend: Mend | None = None


Check = Callable[[RequestContent, Facts], Iterator[Problem]]


@dataclass(frozen=True)
class Rule:
    """A check with how grave its problems are, and what holds where it finds none, in one line."""

    severity: Severity
    description: str
    check: Check = field(compare=False)

    def __call__(self, content: RequestContent, facts: Facts) -> Iterator[Problem]:
        return self.check(content, facts)


def rule(severity: Severity) -> Callable[[Check], Rule]:
    """Make a rule of a function; the first line of its docstring is its description."""

    def make(check: Check) -> Rule:
        return Rule(severity, (check.__doc__ or "").partition("\n")[0], check)

    return make


@dataclass(frozen=True)
class Finding:
    """A problem with the name of the rule that found it."""

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
    def mend(self) -> Mend | None:
        return self.problem.mend

    @property
    def blocks(self) -> bool:
        """Tell whether the request cannot be submitted with it."""
        return self.severity != Severity.SHOULD


def run(rules: Mapping[str, Rule], content: RequestContent, facts: Facts) -> list[Finding]:
    """Ask every rule, and return all that they find, gravest first. A rule that breaks is said to have."""
    found: list[Finding] = []
    for name, one in rules.items():
        try:
            found += [Finding(name, one.severity, problem) for problem in one(content, facts)]
        except Exception as error:  # a third party's rule may raise anything; the others must still speak
            log.exception("the check %s broke", name)
            broken = Problem("", f"The check “{name}” could not be made ({type(error).__name__}).")
            found.append(Finding(name, Severity.SHOULD, broken))
    order = list(Severity)
    return sorted(found, key=lambda finding: order.index(finding.severity))


def stages(content: RequestContent) -> Iterator[tuple[str, StageContent]]:
    """Return each stage with its path."""
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
