"""The thresholds that apply to a request: the defaults of the checks, overridden by admins."""

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import Q

from apps.accounts.models import Experiment, Principal
from apps.core.domain.background import enqueue
from apps.core.domain.events import publish
from apps.core.errors import InvalidFields
from apps.production.domain.reasons import MAX_REASON
from apps.production.models import Request, WorkflowType
from apps.quality.checks.base import QualityCheck
from apps.quality.checks.registry import checks
from apps.quality.enums import Effect, Unknown
from apps.quality.models import Thresholds

_MOST = 1e15


@dataclass(frozen=True)
class Setting:
    """The setting of a check: limits, effects, and the `Thresholds` rows they come from."""

    check: str
    limits: Mapping[str, float | None]
    effect: Effect
    unknown: Unknown
    rows: tuple[int, ...] = ()

    def plain(self) -> dict[str, Any]:
        return vars(self) | {"rows": list(self.rows)}


def settings_for(request: Request) -> dict[str, Setting]:
    """Return the current setting of each check.

    The narrowest row wins: default, workflow type, experiment, both.
    """
    type_id = request.workflow.type_id
    experiment_id = request.experiment_id
    applies = (Q(workflow=None) | Q(workflow=type_id)) & (
        Q(experiment=None) | Q(experiment=experiment_id)
    )
    newest: dict[tuple[str, bool, bool], Thresholds] = {}
    for thresholds in Thresholds.objects.filter(applies).order_by("pk"):
        newest[
            thresholds.check_name,
            thresholds.experiment_id is not None,
            thresholds.workflow_id is not None,
        ] = thresholds
    wide_first: dict[str, list[Thresholds]] = defaultdict(list)
    for place in sorted(newest):
        wide_first[newest[place].check_name].append(newest[place])
    return {name: _setting(name, check, wide_first[name]) for name, check in checks().items()}


def _setting(name: str, check: QualityCheck, stored: list[Thresholds]) -> Setting:
    limits = {limit.name: limit.default for limit in check.limits}
    effect = check.effect
    unknown = check.unknown
    used = []
    for thresholds in stored:
        if thresholds.effect != Effect.INHERIT:
            limits |= {key: value for key, value in thresholds.limits.items() if key in limits}
            effect = Effect(thresholds.effect)
            unknown = Unknown(thresholds.unknown)
            used.append(thresholds.pk)
    return Setting(name, limits, effect, unknown, tuple(used))


@transaction.atomic
def save_thresholds(
    *,
    check: str,
    effect: str,
    unknown: str,
    limits: Mapping[str, Any],
    by: Principal,
    at: datetime,
    reason: str,
    workflow: WorkflowType | None = None,
    experiment: Experiment | None = None,
) -> Thresholds:
    """Set the limits of a check from now on.

    Requests in data quality are evaluated again. Earlier runs stay as they are. Raises
    `InvalidFields` with every fault.
    """
    problems = problems_of(check=check, limits=limits, reason=reason)
    if problems:
        raise InvalidFields(problems)
    scope = {"check_name": check, "workflow": workflow, "experiment": experiment}
    effects = {"effect": effect, "unknown": unknown, "limits": dict(limits)}
    before = Thresholds.objects.filter(**scope).first()
    thresholds = Thresholds.objects.create(
        **scope, **effects, reason=reason.strip(), at=at, by=str(by)
    )
    data = {"check": check, "old": _as_event_data(before), "new": _as_event_data(thresholds)}
    publish(
        kind="quality.thresholds_saved",
        target=thresholds,
        by=by,
        at=at,
        reason=thresholds.reason,
        data=data,
    )
    enqueue("quality.check_all")
    return thresholds


def problems_of(*, check: str, limits: Any, reason: str) -> dict[str, list[str]]:
    """Return the problems of thresholds, by field."""
    problems: dict[str, list[str]] = {}
    known = checks().get(check)
    if known is None:
        problems["check_name"] = [
            f"Unknown check “{check[:64]}”. Choose one of: {', '.join(checks())}."
        ]
    if not reason.strip() or len(reason) > MAX_REASON:
        problems["reason"] = [f"Give a reason in at most {MAX_REASON:,} characters."]
    if not isinstance(limits, Mapping):
        return problems | {"limits": ['Enter names with numbers, such as {"most_off": 0.01}.']}
    if known:
        names = [limit.name for limit in known.limits]
    else:
        names = list(limits)
    wrong = []
    for name in limits:
        if name not in names:
            wrong.append(f"Unknown limit “{name}”. Choose one of: {', '.join(names)}.")
    for name, value in limits.items():
        if not _is_limit(value):
            wrong.append(f"{name}: enter a number, or null for no limit.")
    return problems | ({"limits": wrong} if wrong else {})


def _is_limit(value: Any) -> bool:
    if value is None:
        return True
    return type(value) in (int, float) and math.isfinite(value) and abs(value) <= _MOST


def _as_event_data(thresholds: Thresholds | None) -> dict[str, Any] | None:
    if thresholds is None:
        return None
    return {"effect": thresholds.effect, "unknown": thresholds.unknown, "limits": thresholds.limits}
