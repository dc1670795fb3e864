"""The rules as documentation, from the registry alone."""

from collections.abc import Iterator
from pathlib import Path

from apps.production.domain.checks.base import Severity
from apps.production.domain.checks.registry import RULES, rules

BEGIN, END = "<!-- begin: rules -->", "<!-- end: rules -->"
_WHAT = {
    Severity.STOP: "Must hold for a draft to be saved",
    Severity.MUST: "Must hold for a request to be submitted",
    Severity.SHOULD: "Should hold; a request may be submitted without, and approvers see it",
}


def rules_by_severity() -> list[tuple[Severity, str, list[tuple[str, str]]]]:
    """Return each severity, what it means, and its rules: name and what holds."""
    found = rules()
    return [
        (
            severity,
            _WHAT[severity],
            [(name, one.description) for name, one in found.items() if one.severity == severity],
        )
        for severity in Severity
    ]


def table() -> str:
    """Return the built-in rules as tables, between their marks."""
    return "\n".join([BEGIN, *_lines(), END])


def _lines() -> Iterator[str]:
    for _, words, found in rules_by_severity():
        yield from (f"### {words}", "", "| rule | holds when |", "| --- | --- |")
        yield from (f"| `{name}` | {words} |" for name, words in found if name in RULES.builtins)
        yield ""


def updated(path: Path) -> tuple[str, str]:
    """Return a page's text as it is and as it must be."""
    text = path.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return text, f"{before}{table()}{after}"
