"""The registry of rules: built-in ones in the order of the documentation, then third-party ones."""

from collections.abc import Mapping
from types import ModuleType

from apps.core.domain.plugins import Registry
from apps.production.domain.checks.base import Rule, Severity
from apps.production.domain.checks.rules import chain, context, fields, history, shape, sizes


def _rules_of(*modules: ModuleType) -> dict[str, tuple[ModuleType, Rule]]:
    """Return the rules of modules by name, in the order in which they are written."""
    found = ((name, module, one) for module in modules for name, one in vars(module).items())
    return {name: (module, one) for name, module, one in found if isinstance(one, Rule)}


RULES: Registry[Rule] = Registry(
    group="opsportal.request_checks",
    builtins={
        name: f"{module.__name__}:{name}"
        for name, (module, _) in _rules_of(shape, fields, chain, sizes, context, history).items()
    },
)
#: A draft must pass these to be saved. Third-party rules never prevent saving a draft.
SHAPE: Mapping[str, Rule] = {
    name: one for name, (_, one) in _rules_of(shape).items() if one.severity == Severity.INVALID
}


def rules() -> dict[str, Rule]:
    """Return every working rule by name: built-in rules in their order, then third-party ones."""
    working = RULES.working()
    order = {name: place for place, name in enumerate(RULES.builtins)}
    return {name: working[name] for name in sorted(working, key=lambda name: (order.get(name, len(order)), name))}


def rules_by_severity() -> list[tuple[Severity, str, list[tuple[str, str]]]]:
    """Return each severity with its meaning and its rules, each a name and a description."""
    found = rules()
    meanings = {
        Severity.INVALID: "Required to save a draft",
        Severity.ERROR: "Required to submit a request",
        Severity.WARNING: "Recommended: approvers see a warning",
    }
    return [
        (level, words, [(name, one.description) for name, one in found.items() if one.severity == level])
        for level, words in meanings.items()
    ]
