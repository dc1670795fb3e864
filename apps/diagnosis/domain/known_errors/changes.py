"""Change known errors, directly or by a proposal; each change is a version with its author."""

from collections.abc import Iterable, Mapping
from datetime import date, datetime
from typing import Any

from django.core.exceptions import ValidationError
from django.core.serializers.json import DjangoJSONEncoder
from django.db import transaction

from apps.accounts.models import Experiment, Principal
from apps.accounts.permissions import scope_of
from apps.core.domain.events import publish
from apps.core.domain.expressions.runs import TooCostly
from apps.core.domain.workflow import move
from apps.core.errors import InvalidFields, NotAllowed, StaleState
from apps.diagnosis.domain.known_errors.expressions import catalogue_fault, expression_faults
from apps.diagnosis.domain.known_errors.omissions import forget_omissions
from apps.diagnosis.enums import CHANGE_MOVES, ChangeState
from apps.diagnosis.models import CatalogueState, KnownError, KnownErrorChange
from apps.diagnosis.permissions import may_edit_catalogue, may_propose_known_errors

FIELDS = (
    "title",
    "category",
    "service",
    "regex",
    "role",
    "advice",
    "instructions",
    "example",
    "where",
    "experiment",
    "owner",
    "link",
    "expires_at",
    "passive",
    "enabled",
    "pack",
)
PORTAL = "opsportal"
#: The same message for an experiment that does not exist and one in which the user has no role.
NO_EXPERIMENT = "Experiment “{}” not found, or you do not have access."


def values_of(known_error: KnownError) -> dict[str, Any]:
    """Return the fields of a known error as plain data: experiment as key, expiry in ISO 8601."""
    values = {name: getattr(known_error, name) for name in FIELDS}
    values["experiment"] = known_error.experiment.key if known_error.experiment else ""
    values["expires_at"] = None
    if known_error.expires_at:
        values["expires_at"] = DjangoJSONEncoder().default(known_error.expires_at)
    return values


def changed_fields(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return the names of the fields whose values differ."""
    return [name for name in FIELDS if old.get(name) != new.get(name)]


def read_known_error(
    known_error: str,
    values: Mapping[str, Any],
    *,
    experiments: Mapping[str, Experiment] | None = None,
) -> tuple[KnownError, dict[str, list[str]]]:
    """Return an unsaved known error with these values, and its problems by field.

    Missing fields, and those that are None, get their defaults. The expression is not compiled.
    Callers that read many rows pass all existing `experiments` by their key in capitals.
    """
    values = {name: value for name, value in values.items() if value is not None}
    key = values.pop("experiment", "")
    problems: dict[str, list[str]] = {}
    if not isinstance(values.get("expires_at", ""), str | date):
        problems["expires_at"] = ["Write a date and time, such as 2026-12-31T12:00:00Z."]
        del values["expires_at"]
    if experiments is None:
        experiment = None
        if key:
            experiment = Experiment.objects.filter(key__iexact=key).first()
    else:
        experiment = experiments.get(str(key).upper())
    if key and experiment is None:
        problems["experiment"] = [NO_EXPERIMENT.format(key)]
    if unknown := values.keys() - set(FIELDS):
        problems["id"] = [f"Unknown fields: {', '.join(sorted(unknown))}."]
    entry = KnownError(
        id=known_error,
        experiment=experiment,
        **{name: value for name, value in values.items() if name in FIELDS},
    )
    try:
        entry.clean_fields(exclude=["experiment"])
    except ValidationError as error:
        problems |= error.message_dict
    return entry, problems


def expression_of(
    known_error: KnownError, problems: Mapping[str, object]
) -> tuple[str, str] | None:
    """Return the expression of a row that was read, with its example.

    Return None if there is nothing to compile.
    """
    if "regex" in problems or not known_error.regex or not known_error.example:
        return None
    return known_error.regex, known_error.example


def checked_known_error(
    known_error: str, values: Mapping[str, Any], *, by: Principal
) -> KnownError:
    """Return an unsaved known error with these values; missing fields and None get their defaults.

    Raises `InvalidFields`.
    """
    entry, problems = read_known_error(known_error, values)
    if expression := expression_of(entry, problems):
        try:
            check_pattern(*expression, by=by)
        except InvalidFields as error:
            problems |= error.problems
    if problems:
        raise InvalidFields(problems)
    return entry


def checked_change(
    known_error: str, values: Mapping[str, Any], *, reason: str, by: Principal
) -> KnownError:
    """Return an unsaved known error as `checked_known_error` does.

    Raises `InvalidFields` with all problems, including a missing reason.
    """
    problems: dict[str, list[str]] = {}
    if not reason.strip():
        problems["reason"] = ["Enter a reason. The next shift will read it."]
    try:
        entry = checked_known_error(known_error, values, by=by)
    except InvalidFields as error:
        raise InvalidFields({**error.problems, **problems}) from error
    if problems:
        raise InvalidFields(problems)
    return entry


def check_pattern(regex: str, example: str | None, *, by: Principal) -> None:
    """Check that an expression can be used and, with an example, that it matches it.

    Raises `InvalidFields`.
    """
    try:
        fault = expression_faults([(regex, example)], by=by)[0]
    except TooCostly as error:
        raise InvalidFields({"regex": [str(error)]}) from error
    if fault:
        raise InvalidFields({"regex": [f"The pattern {fault}."]})


@transaction.atomic
def submit_change(
    *,
    known_error: str,
    values: Mapping[str, Any],
    by: Principal,
    at: datetime,
    reason: str,
    base: int | None = None,
    propose: bool = False,
) -> KnownErrorChange:
    """Change a known error, or propose the change.

    A change is proposed if the user may not edit the catalogue or requests a review. `base` is the
    version that the user has seen: 0 for a new known error, None to skip the check. Raises
    `NotAllowed`, `InvalidFields`, and `StaleState` if another user changed it since.
    """
    if not may_propose_known_errors(by):
        raise NotAllowed("Only the OPG and liaisons can propose known errors.")
    _lock_catalogue()
    old = KnownError.objects.select_related("experiment").filter(pk=known_error).first()
    if base is not None and base != (old.version if old else 0):
        raise StaleState(
            f"{known_error} was changed by another user in the meantime. Reload it and try again."
        )
    _check_experiment(values, old, by)
    values = (values_of(old) if old else {}) | dict(values)
    entry = checked_change(known_error, values, reason=reason, by=by)
    if old and values_of(old) == values_of(entry):
        raise InvalidFields({"reason": ["Nothing has changed."]})
    change = KnownErrorChange(
        known_error=known_error,
        state=ChangeState.PROPOSED,
        values=values_of(entry),
        fields=changed_fields(values_of(old) if old else {}, values_of(entry)),
        by=str(by)[:150],
        at=at,
        reason=reason.strip(),
    )
    if propose or not may_edit_catalogue(by):
        change.save()
        publish(kind="known_error.proposed", target=change, by=by, at=at, reason=change.reason)
        return change
    change.state = ChangeState.APPLIED
    change.version = _save_row(entry, by=by)
    change.save()
    _set_version(change)
    publish(
        kind="known_error.changed",
        target=change,
        by=by,
        at=at,
        new=str(change.version),
        reason=change.reason,
    )
    return change


def _check_experiment(values: Mapping[str, Any], old: KnownError | None, by: Principal) -> None:
    """Raise `InvalidFields` if the values name another experiment that the user cannot see."""
    key = str(values.get("experiment") or "")
    is_unchanged = old is not None and old.experiment is not None and old.experiment.key == key
    if key and not is_unchanged and visible_experiment(key, by) is None:
        raise InvalidFields({"experiment": [NO_EXPERIMENT.format(key)]})


def visible_experiment(key: str, by: Principal | None) -> Experiment | None:
    """Return the experiment with this key, ignoring case.

    Return None if there is none, or if the user has no role in it. Without a user, every experiment
    is visible.
    """
    experiment = Experiment.objects.filter(key__iexact=key).first()
    if experiment and by is not None and not scope_of(by).sees(experiment.pk):
        return None
    return experiment


def proposed_values(change: KnownErrorChange) -> dict[str, Any]:
    """Return the values that a known error has after a proposal is approved.

    Only the fields that differed from the version on which the proposal is based change; all others
    keep their current values.
    """
    entry = KnownError.objects.select_related("experiment").filter(pk=change.known_error).first()
    now = values_of(entry) if entry else {}
    return now | {
        name: value
        for name, value in change.values.items()
        if name in change.fields or name not in now
    }


@transaction.atomic
def decide_change(
    *, change: KnownErrorChange, approve: bool, by: Principal, at: datetime, reason: str = ""
) -> KnownErrorChange:
    """Approve or reject a proposal.

    Raises `NotAllowed`, `InvalidTransition`, `StaleState`, `InvalidFields`.
    """
    if not may_edit_catalogue(by):
        raise NotAllowed("Only approvers and admins of the OPG can decide on proposals.")
    if not approve and not reason.strip():
        raise InvalidFields(
            {"reason": ["Enter a reason. The author of the proposal will read it."]}
        )
    _lock_catalogue()
    decided: dict[str, Any] = {
        "decided_by": str(by)[:150],
        "decided_at": at,
        "decision": reason.strip(),
    }
    if approve:
        entry = checked_known_error(change.known_error, proposed_values(change), by=by)
        decided |= {"version": _save_row(entry, by=by), "values": values_of(entry)}
    to = ChangeState.APPLIED if approve else ChangeState.REJECTED
    move(change, to=to, transitions=CHANGE_MOVES, field="state", **decided)
    if approve:
        _set_version(change)
    kind = "known_error.changed" if approve else "known_error.rejected"
    publish(
        kind=kind, target=change, by=by, at=at, new=str(change.version or ""), reason=reason.strip()
    )
    return change


@transaction.atomic
def save_together(
    *, known_errors: Iterable[KnownError], by: Principal, at: datetime, reason: str
) -> int:
    """Save several known errors, each as a version with its change, and compile once.

    Return how many differed. Raises `InvalidFields` if the catalogue would not compile with them.
    """
    _lock_catalogue()
    saved = 0
    for known_error in known_errors:
        old = KnownError.objects.select_related("experiment").filter(pk=known_error.pk).first()
        before = values_of(old) if old else {}
        if before == values_of(known_error):
            continue
        if old:
            known_error.version = old.version + 1
            known_error.shipped = old.shipped
        else:
            known_error.version = 1
            known_error.shipped = None
        known_error.save()
        if old and old.regex != known_error.regex:
            forget_omissions(known_error.pk)
        change = KnownErrorChange.objects.create(
            known_error=known_error.pk,
            version=known_error.version,
            state=ChangeState.APPLIED,
            values=values_of(known_error),
            fields=changed_fields(before, values_of(known_error)),
            by=str(by)[:150],
            at=at,
            reason=reason,
        )
        _set_version(change)
        saved += 1
    if saved:
        _check_catalogue(by)
    return saved


@transaction.atomic
def disable_expired(*, at: datetime) -> int:
    """Disable expired known errors, each with a new version; return their number."""
    expired = KnownError.objects.select_related("experiment").filter(
        enabled=True, expires_at__lte=at
    )
    if not expired.exists():
        return 0
    _lock_catalogue()
    # Evaluate the query again under the lock: another user may have extended an expiry meanwhile.
    rows = list(expired)
    for known_error in rows:
        known_error.enabled = False
        change = KnownErrorChange(
            known_error=known_error.id,
            state=ChangeState.APPLIED,
            by=PORTAL,
            at=at,
            reason="It expired.",
        )
        change.version = _save_row(known_error, by=PORTAL)
        change.values = values_of(known_error)
        change.save()
        _set_version(change)
    return len(rows)


def _lock_catalogue() -> None:
    """Lock the catalogue until the end of the transaction, so that changes are made in sequence."""
    CatalogueState.objects.get_or_create(pk=1)
    CatalogueState.objects.select_for_update().get(pk=1)


def _set_version(change: KnownErrorChange) -> None:
    """Make an applied change the version of the catalogue.

    Its number is never reused, even after a restore.
    """
    CatalogueState.objects.filter(pk=1).update(number=change.pk)


def _save_row(known_error: KnownError, *, by: Principal) -> int:
    """Save a row as the next version of its known error; return the version.

    Raises `InvalidFields` if the catalogue would not compile with it.
    """
    old = KnownError.objects.filter(pk=known_error.pk).values(
        "version", "shipped", "regex"
    ).first() or {
        "version": 0,
        "shipped": None,
        "regex": "",
    }
    known_error.version = old["version"] + 1
    known_error.shipped = known_error.shipped or old["shipped"]
    known_error.save()
    if known_error.regex != old["regex"]:
        forget_omissions(known_error.pk)
    if known_error.enabled:
        _check_catalogue(by)
    return known_error.version


def _check_catalogue(by: Principal) -> None:
    """Raise `InvalidFields` if the enabled known errors do not compile together."""
    expressions = list(KnownError.objects.filter(enabled=True).values_list("regex", flat=True))
    try:
        fault = catalogue_fault(expressions, by=by)
    except TooCostly as error:
        raise InvalidFields({"regex": [str(error)]}) from None
    if fault:
        raise InvalidFields({"regex": [f"The pattern is too large: {fault}."]})
