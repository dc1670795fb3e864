"""Checks of a request: rules for saving and submitting it, and their findings.

Third-party rules import these names.
"""

from apps.production.domain.checks.base import (
    Facts,
    Fix,
    Problem,
    Rule,
    RuleFinding,
    Severity,
    rule,
)

__all__ = ["Facts", "Fix", "Problem", "Rule", "RuleFinding", "Severity", "rule"]
