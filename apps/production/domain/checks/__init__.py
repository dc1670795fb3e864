"""What must and should be right in a request before it is saved, and before it is submitted."""

from apps.production.domain.checks.base import Finding, Mend, Problem, Rule, Severity, rule
from apps.production.domain.checks.facts import Facts
from apps.production.domain.checks.outcome import Problems, check_content, check_shape, examine, messages_of
from apps.production.domain.checks.shape import unknown_service

__all__ = [
    "Facts",
    "Finding",
    "Mend",
    "Problem",
    "Problems",
    "Rule",
    "Severity",
    "check_content",
    "check_shape",
    "examine",
    "messages_of",
    "rule",
    "unknown_service",
]
