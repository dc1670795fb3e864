"""Recovery rules in the packs of experiments: read, compare, apply and export them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from apps.accounts.models import Experiment, Principal
from apps.core.errors import InvalidFields
from apps.diagnosis.domain.packs.parts import EntryFault, PartEffect, ReadPart
from apps.production.domain.yaml_text import write_yaml
from apps.recovery.domain.rules.definition import read_definition
from apps.recovery.domain.rules.lifecycle import (
    change_rule,
    clean_name,
    create_rule,
    definition_of,
    set_mode,
    stored_definition,
)
from apps.recovery.enums import Mode
from apps.recovery.models import RecoveryRule

#: Maximum number of rules in a pack.
MOST_RULES = 100
PARTS = ("scope", "condition", "action", "limits")


@dataclass(frozen=True, slots=True)
class DeclaredRule:
    """A rule that a pack declares; `definition` as rules store it."""

    name: str
    definition: dict[str, Any]


class _RulesOfPacks:
    """The part `recovery_rules` of packs.

    A new rule and a new version are passive. A rule that the pack no longer declares is switched
    off. A rule of the same experiment that was written on the pages belongs to the pack from then
    on.
    """

    most = MOST_RULES
    fields = ("name", *PARTS)

    def read(
        self, entries: Sequence[tuple[int, Mapping[str, Any]]], *, experiment: Experiment
    ) -> ReadPart:
        faults: list[EntryFault] = []
        declared: dict[str, DeclaredRule] = {}
        taken = _names_of_others(experiment) if entries else set()
        for number, entry in entries:
            name = _read_name(number, entry, faults)
            if name.casefold() in declared:
                faults.append(EntryFault(number, "name", f"“{name}” appears twice."))
            if name.casefold() in taken:
                what = f"The rule “{name}” exists and is not of this experiment. Choose another."
                faults.append(EntryFault(number, "name", what))
            definition = _read_entry(number, name, entry, faults)
            declared[name.casefold()] = DeclaredRule(name, definition)
        return ReadPart(list(declared.values()), faults)

    def effect_of(self, content: Sequence[DeclaredRule], *, experiment: Experiment) -> PartEffect:
        rules = _rules_by_name(experiment)
        added = []
        changed = []
        for declared in content:
            rule = rules.pop(declared.name.casefold(), None)
            if rule is None:
                added.append(_text(declared.name))
            elif _differs(rule, declared):
                changed.append(_text(rule.name))
        removed = []
        for rule in rules.values():
            if rule.of_pack and rule.mode != Mode.OFF:
                removed.append(_text(rule.name))
        return PartEffect(added, changed, removed)

    def apply(
        self,
        content: Sequence[DeclaredRule],
        *,
        experiment: Experiment,
        by: Principal,
        at: datetime,
        reason: str,
    ) -> None:
        rules = _rules_by_name(experiment)
        for declared in content:
            rule = rules.pop(declared.name.casefold(), None)
            if rule is None:
                rule = create_rule(
                    name=declared.name,
                    definition=declared.definition,
                    experiment=experiment,
                    by=by,
                    at=at,
                    reason=reason,
                )
            else:
                rule = _update_rule(rule, declared, by=by, at=at, reason=reason)
            if not rule.of_pack:
                RecoveryRule.objects.filter(pk=rule.pk).update(of_pack=True)
        for rule in rules.values():
            if rule.of_pack and rule.mode != Mode.OFF:
                set_mode(rule=rule, mode=Mode.OFF, by=by, at=at, reason=reason)


RULES_OF_PACKS = _RulesOfPacks()


def export_rules(experiment: Experiment) -> str:
    """Return the rules of an experiment as YAML of a pack, without values that are defaults."""
    rules = []
    for rule in RecoveryRule.objects.filter(experiment=experiment):
        definition = definition_of(rule)
        rules.append(
            {"name": rule.name, **definition.model_dump(mode="json", exclude_defaults=True)}
        )
    pack = {"experiment": experiment.key, "recovery_rules": rules}
    return write_yaml(pack, width=100)


def _update_rule(
    rule: RecoveryRule, declared: DeclaredRule, *, by: Principal, at: datetime, reason: str
) -> RecoveryRule:
    """Write the next version if the definition differs, and let a rule that is off match again."""
    if definition_of(rule) != read_definition(declared.definition):
        rule = change_rule(
            rule=rule,
            definition=declared.definition,
            by=by,
            at=at,
            reason=reason,
            base=rule.version,
        )
    if rule.mode == Mode.OFF:
        rule = set_mode(rule=rule, mode=Mode.PASSIVE, by=by, at=at, reason=reason)
    return rule


def _differs(rule: RecoveryRule, declared: DeclaredRule) -> bool:
    """Return whether applying the declaration changes the rule."""
    if rule.mode == Mode.OFF or not rule.of_pack:
        return True
    return definition_of(rule) != read_definition(declared.definition)


def _read_name(number: int, entry: Mapping[str, Any], faults: list[EntryFault]) -> str:
    name = entry.get("name")
    if not isinstance(name, str):
        faults.append(EntryFault(number, "", "A recovery rule needs a name."))
        return f"rule {number + 1}"
    try:
        return clean_name(name)
    except InvalidFields as error:
        for message in error.problems["name"]:
            faults.append(EntryFault(number, "name", f"name: {message}"))
        return f"rule {number + 1}"


def _read_entry(
    number: int, name: str, entry: Mapping[str, Any], faults: list[EntryFault]
) -> dict[str, Any]:
    """Return the definition of an entry as rules store it; empty if it has faults."""
    values = {part: entry[part] for part in PARTS if part in entry}
    try:
        return stored_definition(read_definition(values))
    except InvalidFields as error:
        for field, messages in error.problems.items():
            for message in messages:
                faults.append(EntryFault(number, field, f"{name}, {field}: {message}"))
        return {}


def _rules_by_name(experiment: Experiment) -> dict[str, RecoveryRule]:
    rules = RecoveryRule.objects.filter(experiment=experiment).select_related("experiment")
    return {rule.name.casefold(): rule for rule in rules}


def _names_of_others(experiment: Experiment) -> set[str]:
    """Return the names of rules of all experiments and of other ones."""
    own = RecoveryRule.objects.filter(experiment=experiment)
    names = RecoveryRule.objects.exclude(pk__in=own.values("pk")).values_list("name", flat=True)
    return {name.casefold() for name in names}


def _text(name: str) -> str:
    return f"recovery rule “{name}”"
