"""The registry of rules: built-in ones in the order of the documentation, then third-party ones."""

from collections.abc import Mapping

from apps.core.domain.plugins import Registry
from apps.production.domain.checks.base import Rule, Severity
from apps.production.domain.checks.rules import (
    chain,
    datasets,
    draft,
    fields,
    jobs,
    keep_up,
    merging,
    releases,
    runs_and_seeds,
    scans,
    services,
    unusual,
)

_MODULES = (
    draft,
    fields,
    chain,
    jobs,
    unusual,
    keep_up,
    merging,
    scans,
    runs_and_seeds,
    datasets,
    services,
    releases,
)


def _find_rules() -> dict[str, str]:
    """Return where the rules of the portal are defined, by name of the rule."""
    places = {}
    for module in _MODULES:
        for name, value in vars(module).items():
            if isinstance(value, Rule):
                places[name] = f"{module.__name__}:{name}"
    return places


RULES: Registry[Rule] = Registry(group="opsportal.request_checks", builtins=_find_rules())
#: Rules that a draft must pass to be saved. Third-party rules never prevent saving a draft.
DRAFT: Mapping[str, Rule] = {
    name: value for name, value in vars(draft).items() if isinstance(value, Rule)
}
rules = RULES.working


def rules_by_severity() -> list[tuple[Severity, str, list[tuple[str, str]]]]:
    """Return each severity with its meaning and its rules. A rule is a name and a description."""
    meanings = {
        Severity.INVALID: "Required to save a draft",
        Severity.ERROR: "Required to submit a request",
        Severity.WARNING: "Recommended: approvers see a warning",
    }
    descriptions: dict[Severity, list[tuple[str, str]]] = {severity: [] for severity in meanings}
    for name, check in rules().items():
        descriptions[check.severity].append((name, check.description))
    return [(severity, meaning, descriptions[severity]) for severity, meaning in meanings.items()]
