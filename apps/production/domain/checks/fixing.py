"""Apply the fixes that checks offer, one after another, so that no fix contradicts another."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from apps.production.domain.checks.base import Fix
from apps.production.domain.checks.report import CheckReport
from apps.production.domain.content.model import RequestContent

#: How many fixes or sets of fixes are tried at most. Each needs the checks to run again.
MOST_TRIES = 60
#: Fields whose values other fields are measured by, in the order in which they are fixed: the
#: number of jobs decides how long a job takes, its memory which clusters accept it, and so on.
#: All other fields come before them, and do not depend on them.
_ORDER = (
    "jobs",
    "events",
    "memory_bytes",
    "wall_seconds",
    "retry_memory_bytes",
    "retry_wall_seconds",
    "most_in_flight",
    "deadline",
)
#: The order of a field, and the position of its stage.
_Place = tuple[int, int]


@dataclass(frozen=True)
class _Attempt:
    """A content, the report of its checks, and the fixes that led to it."""

    content: RequestContent
    report: CheckReport
    applied: tuple[Fix, ...] = ()

    @property
    def errors(self) -> int:
        return sum(finding.blocks for finding in self.report.findings)

    @property
    def fixes_by_place(self) -> Counter[_Place]:
        return Counter(_place_of(fix) for fix in self.report.fixes)

    def is_better_than(self, other: "_Attempt") -> bool:
        """Whether it has fewer errors or, with as many and no more warnings, fewer fixes to apply.

        An earlier field counts more than all later ones. As every step is better than the one
        before, the steps end, and none is taken twice.
        """
        if self.errors != other.errors:
            return self.errors < other.errors
        if len(self.report.findings) > len(other.report.findings):
            return False
        ours = self.fixes_by_place
        theirs = other.fixes_by_place
        for place in sorted({*ours, *theirs}):
            if ours[place] != theirs[place]:
                return ours[place] < theirs[place]
        return False


def apply_fixes(
    content: RequestContent, check: Callable[[RequestContent], CheckReport]
) -> tuple[RequestContent, list[Fix]]:
    """Apply the offered fixes while they help; return the new content and the applied fixes.

    After each step `check` runs again on the new content. A fix that leads to more errors or
    warnings than it ends, or only to a fix of an earlier field, is left out.
    """
    current = _Attempt(content, check(content))
    tries = 0
    while tries < MOST_TRIES:
        for fixes in _candidates(current.report):
            tries += 1
            attempt = _try(current, fixes, check)
            if attempt.is_better_than(current):
                current = attempt
                break
            if tries >= MOST_TRIES:
                break
        else:
            break
    return current.content, list(current.applied)


def _try(
    current: _Attempt, fixes: list[Fix], check: Callable[[RequestContent], CheckReport]
) -> _Attempt:
    content = current.content
    for fix in fixes:
        content = fix.applied_to(content)
    return _Attempt(content, check(content), (*current.applied, *fixes))


def _candidates(report: CheckReport) -> list[list[Fix]]:
    """Return what to try next: all fixes of a rule at once, which saves checks, then each alone.

    Of several fixes of one field by one rule, only the first is among those at once.
    """
    by_rule: dict[str, list[Fix]] = {}
    for finding in report.findings:
        if finding.fix:
            by_rule.setdefault(finding.rule, []).append(finding.fix)
    candidates = []
    for fixes in by_rule.values():
        together = _without_conflicts(fixes)
        candidates.append(together)
        if len(fixes) > 1:
            candidates += [[fix] for fix in fixes]
    return sorted(candidates, key=lambda fixes: min(map(_place_of, fixes)))


def _without_conflicts(fixes: list[Fix]) -> list[Fix]:
    chosen = []
    changed_fields: set[str] = set()
    for fix in fixes:
        if changed_fields.isdisjoint(fix.values):
            chosen.append(fix)
            changed_fields.update(fix.values)
    return chosen


def _place_of(fix: Fix) -> _Place:
    """Return the place of the first field that a fix changes."""
    return min(_place_of_field(path) for path in fix.values)


def _place_of_field(path: str) -> _Place:
    parts = path.split(".")
    order = 0
    if parts[-1] in _ORDER:
        order = _ORDER.index(parts[-1]) + 1
    position = 0
    if parts[0] == "stages":
        position = int(parts[1])
    return order, position
