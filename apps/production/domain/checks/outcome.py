"""Asking all rules at once, and what comes of it."""

from collections.abc import Iterable

from apps.production.domain.checks.base import Finding, Severity, run
from apps.production.domain.checks.facts import Facts
from apps.production.domain.checks.registry import SHAPE, rules
from apps.production.domain.content.model import RequestContent

Problems = dict[str, list[str]]


def check_shape(content: RequestContent, facts: Facts) -> Problems:
    """Return what cannot even be stored as a draft: too long, too large, unknown."""
    return messages_of(run(SHAPE, content, facts))


def check_content(content: RequestContent, facts: Facts) -> Problems:
    """Return everything that stands between this request and its submission, all at once."""
    blocking = {name: one for name, one in rules().items() if one.severity != Severity.SHOULD}
    return messages_of(found for found in run(blocking, content, facts) if found.blocks)


def examine(content: RequestContent, facts: Facts) -> list[Finding]:
    """Return all that any rule finds, also what a request may be submitted with."""
    return run(rules(), content, facts)


def messages_of(findings: Iterable[Finding]) -> Problems:
    """Return the messages of findings by path, each once."""
    problems: Problems = {}
    for finding in findings:
        messages = problems.setdefault(finding.path, [])
        if finding.message not in messages:
            messages.append(finding.message)
    return problems
