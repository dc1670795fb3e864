"""Running all rules on a request, and the messages they produce."""

from collections.abc import Iterable

from apps.production.domain.checks.base import Finding, Severity, run
from apps.production.domain.checks.facts import Facts
from apps.production.domain.checks.registry import SHAPE, rules
from apps.production.domain.content.model import RequestContent
from apps.production.domain.types.faults import Problems


def check_shape(content: RequestContent, facts: Facts) -> Problems:
    """Return the problems that prevent saving a draft, by field path."""
    return messages_of(run(SHAPE, content, facts))


def check_content(content: RequestContent, facts: Facts) -> Problems:
    """Return all problems that prevent submission, by field path."""
    blocking = {name: one for name, one in rules().items() if one.severity != Severity.WARNING}
    return messages_of(found for found in run(blocking, content, facts) if found.blocks)


def run_checks(content: RequestContent, facts: Facts) -> list[Finding]:
    """Return the findings of all rules, warnings included."""
    return run(rules(), content, facts)


def messages_of(findings: Iterable[Finding]) -> Problems:
    """Return the messages of findings by field path, without duplicates."""
    problems: Problems = {}
    for finding in findings:
        messages = problems.setdefault(finding.path, [])
        if finding.message not in messages:
            messages.append(finding.message)
    return problems
