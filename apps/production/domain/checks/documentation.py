"""Documentation of the rules, generated from the registry."""

from collections.abc import Iterator

from apps.production.domain.checks.base import Severity
from apps.production.domain.checks.registry import RULES, rules

_WHAT = {
    Severity.INVALID: "Required to save a draft",
    Severity.ERROR: "Required to submit a request",
    Severity.WARNING: "Recommended: approvers see a warning",
}


def rules_by_severity() -> list[tuple[Severity, str, list[tuple[str, str]]]]:
    """Return each severity with its meaning and its rules, each a name and a description."""
    found = rules()
    return [
        (
            severity,
            _WHAT[severity],
            [(name, one.description) for name, one in found.items() if one.severity == severity],
        )
        for severity in Severity
    ]


def rule_tables() -> Iterator[str]:
    """Yield the built-in rules as lines of Markdown, a table for each severity."""
    for _, words, found in rules_by_severity():
        yield from (f"### {words}", "", "| rule | requires |", "| --- | --- |")
        yield from (f"| `{name}` | {words} |" for name, words in found if name in RULES.builtins)
        yield ""
