"""Checks of a request: rules for saving and submitting it, and their findings."""

from apps.production.domain.checks.base import Finding, Fix, Problem, Rule, Severity, rule
from apps.production.domain.checks.facts import Facts
from apps.production.domain.checks.outcome import check_content, check_shape, messages_of, run_checks
from apps.production.domain.checks.rules.shape import unknown_service

__all__ = [
    "Facts",
    "Finding",
    "Fix",
    "Problem",
    "Rule",
    "Severity",
    "check_content",
    "check_shape",
    "messages_of",
    "rule",
    "run_checks",
    "unknown_service",
]
