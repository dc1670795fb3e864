"""Fair shares of experiments: use, changes, and the queue under other shares."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from django.db import transaction
from django.utils.text import get_text_list

from apps.accounts.models import Experiment, User
from apps.core.domain.events import publish
from apps.core.errors import InvalidFields, NotAllowed
from apps.production.domain.experiment_shares import Shares, read_shares
from apps.production.domain.priority.manual_moves import check_version, note_change
from apps.production.domain.priority.rescoring import lock_queue, rescore_entries
from apps.production.domain.priority.what_if import Shift, if_shares
from apps.production.domain.reasons import checked_reason
from apps.production.models import MAX_WEIGHT, ExperimentShare
from apps.production.permissions import may_set_shares


@dataclass(frozen=True)
class ShareRow:
    """An experiment's share as a page shows it: weight, due part and used part."""

    experiment: Experiment
    weight: int
    share: float
    used: float | None
    core_seconds: int


def share_rows(shares: Shares | None = None) -> list[ShareRow]:
    """Return all experiments with their current or proposed shares."""
    shares = shares or read_shares()
    rows = []
    for experiment in Experiment.objects.all():
        pk = experiment.pk
        if pk not in shares.weights:
            continue
        row = ShareRow(
            experiment,
            shares.weights[pk],
            shares.share(pk),
            shares.used_part(pk),
            shares.used.get(pk, 0),
        )
        rows.append(row)
    return rows


@transaction.atomic
def set_shares(
    *, weights: Mapping[int, int], by: User, at: datetime, reason: str, version: int | None = None
) -> list[Experiment]:
    """Set weights by experiment, rescore the queue, and return the experiments that changed.

    `version` is the version of the queue that the user saw. Raises `NotAllowed`, `InvalidFields`,
    `StaleState`.
    """
    if not may_set_shares(by):
        raise NotAllowed("Only approvers for all experiments and admins can set shares.")
    state = lock_queue()
    check_version(state, version)
    old = read_shares()
    new_weights = checked_weights(weights)
    reason = checked_reason(reason)
    new = replace(old, weights=new_weights)
    changed = list(
        Experiment.objects.filter(
            pk__in=[pk for pk in new_weights if new_weights[pk] != old.weights[pk]]
        )
    )
    for experiment in changed:
        values = {"weight": new_weights[experiment.pk], "by": by.username, "at": at}
        ExperimentShare.objects.update_or_create(experiment=experiment, defaults=values)
        data = {"share_old": old.share(experiment.pk), "share_new": new.share(experiment.pk)}
        publish(
            kind="share.set",
            target=experiment,
            by=by,
            at=at,
            old=str(old.weights[experiment.pk]),
            new=str(new_weights[experiment.pk]),
            reason=reason,
            data=data,
        )
    if changed:
        rescore_entries(at=at)
        keys = ", ".join(experiment.key for experiment in changed)
        note_change(state, by=by, at=at, what=f"shares of {keys} were set")
    return changed


def checked_weights(weights: Mapping[int, int]) -> dict[int, int]:
    """Return the weights of all experiments after these changes.

    Raises `InvalidFields` by key of the experiment.
    """
    now = dict(read_shares().weights)
    keys = dict(Experiment.objects.values_list("pk", "key"))
    problems = {}
    for pk, weight in weights.items():
        if pk not in now or not 0 <= weight <= MAX_WEIGHT:
            problems[keys.get(pk, str(pk))] = [f"Enter a whole number from 0 to {MAX_WEIGHT:,}."]
    new_weights = now | dict(weights)
    if not problems and not any(new_weights.values()):
        problems["non_field_errors"] = ["At least one experiment must have a share."]
    if problems:
        raise InvalidFields(problems)
    return new_weights


def warning_about_zero(names: Collection[str]) -> str:
    """Say what a weight of 0 does to the experiments with these names; nothing for none."""
    if not names:
        return ""
    listed = get_text_list(list(names), "and")
    verb = "have" if len(names) > 1 else "has"
    return (
        f"{listed} {verb} a weight of 0. This stops nothing: requests rank lower, and still start "
        "when it is their turn. To stop them, put the experiment on hold."
    )


def what_if_shares(
    weights: Mapping[int, int], *, at: datetime
) -> tuple[list[ShareRow], list[Shift]]:
    """Return the shares under these weights, and the changes they would cause.

    Raises `InvalidFields`.
    """
    new_weights = checked_weights(weights)
    return share_rows(replace(read_shares(), weights=new_weights)), if_shares(new_weights, at=at)
