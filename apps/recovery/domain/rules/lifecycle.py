"""Write recovery rules, and switch them between off, passive and active."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Max, Q, QuerySet, Sum

from apps.accounts.models import Experiment, Principal, User
from apps.accounts.permissions import scope_of
from apps.core.domain.events import publish
from apps.core.errors import InvalidFields, InvalidTransition, NotAllowed, StaleState
from apps.production.domain.reasons import checked_reason
from apps.recovery.domain.figures.daily_effects import recount_days
from apps.recovery.domain.rules.definition import Definition, read_definition
from apps.recovery.enums import Arm, Mode
from apps.recovery.models import DailyEffect, Decision, RecoveryRule, RecoveryRuleVersion
from apps.recovery.permissions import may_activate_rule, may_write_rule

#: Number of jobs that a version must match while passive to become active without a reason.
LEAST_EVIDENCE = 30
#: After a change of rules, the failures decided about within this time are decided about again.
DECIDED_WITHIN = timedelta(days=1)
_NAME_LENGTH = 64


def visible_rules(user: User) -> QuerySet[RecoveryRule]:
    """Return the rules for all experiments, and the rules of experiments that the user sees."""
    rules = RecoveryRule.objects.select_related("experiment")
    scope = scope_of(user)
    if scope.sees_all:
        return rules
    return rules.filter(Q(experiment=None) | Q(experiment__in=scope.experiment_keys))


@transaction.atomic
def create_rule(
    *,
    name: str,
    definition: Mapping[str, Any],
    by: Principal,
    at: datetime,
    experiment: Experiment | None = None,
    owner: str = "",
    reason: str = "",
    shipped: bool = False,
) -> RecoveryRule:
    """Write a new rule, after all others and passive.

    Raises `InvalidFields`, `NotAllowed`.
    """
    if not shipped:
        _check_may_write(by, experiment)
    name = _checked_name(name)
    checked = read_definition(definition)
    last = RecoveryRule.objects.aggregate(last=Max("position"))["last"] or 0
    rule = RecoveryRule.objects.create(
        name=name,
        position=last + 10,
        experiment=experiment,
        definition=stored_definition(checked),
        mode_at=at,
        mode_by=str(by)[:150],
        owner=owner or str(by)[:150],
        shipped=shipped,
    )
    _add_version(rule, by, at, reason)
    decide_again(at)
    if not shipped:
        publish(kind="recovery.created", target=rule, by=by, at=at, new=rule.mode, reason=reason)
    return rule


@transaction.atomic
def change_rule(
    *,
    rule: RecoveryRule,
    definition: Mapping[str, Any],
    by: Principal,
    at: datetime,
    reason: str,
    base: int,
) -> RecoveryRule:
    """Write the next version of a rule. An active rule becomes passive: nobody signed the version.

    `base` is the version that the user saw. Raises `InvalidFields`, `NotAllowed`, `StaleState`.
    """
    rule = _locked(rule)
    _check_may_write(by, rule.experiment)
    reason = checked_reason(reason)
    if rule.version != base:
        raise StaleState(f"“{rule}” has version {rule.version} by now. Reload the page.")
    checked = read_definition(definition)
    if checked == definition_of(rule):
        raise InvalidFields({"": ["Nothing was changed."]})
    rule.definition = stored_definition(checked)
    rule.version += 1
    rule.stopped_itself = False
    if rule.mode == Mode.ACTIVE:
        _set_mode(rule, Mode.PASSIVE, by, at, f"Version {rule.version} is not signed yet.")
    rule.save()
    _add_version(rule, by, at, reason)
    decide_again(at)
    publish(
        kind="recovery.changed",
        target=rule,
        by=by,
        at=at,
        reason=reason,
        data={"version": rule.version},
    )
    return rule


@transaction.atomic
def set_mode(
    *, rule: RecoveryRule, mode: Mode, by: Principal, at: datetime, reason: str = ""
) -> RecoveryRule:
    """Switch a rule; approvers alone may make it act, and sign its version by that.

    Without evidence from its passive time, a reason is required. Raises `InvalidFields`,
    `NotAllowed`, `InvalidTransition` if the rule is in this mode already.
    """
    rule = _locked(rule)
    if mode == Mode.ACTIVE:
        experiment = rule.experiment_id
        if not may_activate_rule(by, experiment):
            raise NotAllowed("Only approvers can let a rule act.")
    else:
        _check_may_write(by, rule.experiment)
    if rule.mode == mode:
        raise InvalidTransition(f"“{rule}” is {rule.get_mode_display().lower()} already.")
    needs_reason = mode == Mode.ACTIVE and evidence_of(rule) < LEAST_EVIDENCE
    if needs_reason and not reason.strip():
        problem = (
            f"Write why: version {rule.version} has matched fewer than {LEAST_EVIDENCE} jobs "
            "while passive."
        )
        raise InvalidFields({"reason": [problem]})
    reason = checked_reason(reason, needed=False)
    old = rule.mode
    _set_mode(rule, mode, by, at, reason)
    rule.stopped_itself = False
    rule.save()
    decide_again(at)
    publish(kind="recovery.mode_set", target=rule, by=by, at=at, old=old, new=mode, reason=reason)
    return rule


@transaction.atomic
def move_rule(*, rule: RecoveryRule, before: RecoveryRule | None, by: Principal) -> None:
    """Try a rule just before another one, or after all others. Raises `NotAllowed`."""
    _check_may_write(by, rule.experiment)
    rules = list(RecoveryRule.objects.select_for_update().order_by("position", "pk"))
    moved = next(other for other in rules if other.pk == rule.pk)
    rules.remove(moved)
    place = len(rules)
    for index, other in enumerate(rules):
        if before is not None and other.pk == before.pk:
            place = index
    rules.insert(place, moved)
    for number, ordered_rule in enumerate(rules, 1):
        ordered_rule.position = number * 10
    RecoveryRule.objects.bulk_update(rules, ["position"])


def evidence_of(rule: RecoveryRule) -> int:
    """Return how many jobs the current version matched while it was passive."""
    totals = DailyEffect.objects.filter(rule=rule, version=rule.version, arm=Arm.PASSIVE)
    return totals.aggregate(jobs=Sum("jobs"))["jobs"] or 0


def decide_again(at: datetime) -> None:
    """Let failures of the last day that no rule matched be decided about again."""
    unmatched = Decision.objects.filter(
        arm=Arm.NO_RULE, decided_at__gte=at - DECIDED_WITHIN, job__verdict__later_state=""
    )
    again = list(unmatched.only("decided_at"))
    Decision.objects.filter(pk__in=[decision.pk for decision in again]).update(
        arm=Arm.PENDING, decided_at=None, due_at=at, attempts=0
    )
    recount_days({decision.time.date() for decision in again})


def definition_of(rule: RecoveryRule) -> Definition:
    return read_definition(rule.definition)


def _locked(rule: RecoveryRule) -> RecoveryRule:
    locked_rule: RecoveryRule = RecoveryRule.objects.select_for_update(of=("self",)).get(pk=rule.pk)
    return locked_rule


def _check_may_write(by: Principal, experiment: Experiment | None) -> None:
    if not may_write_rule(by, experiment.pk if experiment else None):
        raise NotAllowed("Only approvers, shifters and admins can write recovery rules.")


def clean_name(name: str) -> str:
    """Return the name of a rule without superfluous blanks. Raises `InvalidFields`."""
    name = " ".join(name.split())
    if not 3 <= len(name) <= _NAME_LENGTH:
        raise InvalidFields({"name": [f"Enter 3 to {_NAME_LENGTH} characters."]})
    return name


def _checked_name(name: str) -> str:
    name = clean_name(name)
    if RecoveryRule.objects.filter(name__iexact=name).exists():
        raise InvalidFields({"name": ["Another rule has this name."]})
    return name


def stored_definition(definition: Definition) -> dict[str, Any]:
    """Return a definition as rules and their versions store it."""
    stored: dict[str, Any] = definition.model_dump(mode="json")
    return stored


def _add_version(rule: RecoveryRule, by: Principal, at: datetime, reason: str) -> None:
    RecoveryRuleVersion.objects.create(
        rule=rule,
        number=rule.version,
        definition=rule.definition,
        at=at,
        by=str(by)[:150],
        reason=reason,
    )


def _set_mode(rule: RecoveryRule, mode: Mode, by: Principal, at: datetime, reason: str) -> None:
    rule.mode = mode
    rule.mode_at = at
    rule.mode_by = str(by)[:150]
    rule.mode_reason = reason
