"""Propose a version of an experiment's pack, and decide on it; it takes effect on approval."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import transaction

from apps.accounts.models import Experiment, Principal
from apps.core.domain.events import publish
from apps.core.domain.workflow import move
from apps.core.errors import InvalidFields, NotAllowed, StaleState
from apps.diagnosis.domain.known_errors.changes import save_together, values_of
from apps.diagnosis.domain.packs.current import pack_in_force
from apps.diagnosis.domain.packs.parts import PACK_PARTS
from apps.diagnosis.domain.packs.reading import Pack, check_expressions, read_pack
from apps.diagnosis.enums import CHANGE_MOVES, ChangeState, CodeScope
from apps.diagnosis.models import ExitCodeMeaning, ExperimentPack, KnownError
from apps.diagnosis.permissions import may_edit_catalogue, may_propose_pack

CODE_VALUES = ("title", "help", "category", "certain")


@dataclass(frozen=True, slots=True)
class PackEffect:
    """The changes that a pack makes on approval.

    IDs of known errors, numbers of exit codes, and texts of the parts that other apps read.
    """

    added: list[str]
    changed: list[str]
    removed: list[str]
    phases: int
    levels: int


def effect_of(pack: Pack) -> PackEffect:
    """Compare a pack without faults with the one in force."""
    assert pack.experiment  # noqa: S101  a pack without faults has one
    rows = {known_error.pk: known_error for known_error in _rows_of(pack.experiment)}
    codes = {(meaning.kind, meaning.number): meaning for meaning in _codes_of(pack.experiment)}
    added = []
    changed = []
    for key, entry in pack.known_errors.items():
        if key not in rows:
            added.append(key)
        elif values_of(rows[key]) != values_of(entry):
            changed.append(key)
    for code, new in pack.exit_codes.items():
        old = codes.get(code)
        if old is None:
            added.append(_text(new))
        elif any(getattr(old, name) != getattr(new, name) for name in CODE_VALUES):
            changed.append(_text(new))
    removed = [
        key
        for key, known_error in rows.items()
        if key not in pack.known_errors and known_error.enabled
    ]
    for code, known in codes.items():
        if code not in pack.exit_codes and known.pack:
            removed.append(_text(known))
    for name, content in pack.parts.items():
        effect = PACK_PARTS.get(name).effect_of(content, experiment=pack.experiment)
        added += effect.added
        changed += effect.changed
        removed += effect.removed
    return PackEffect(added, changed, removed, len(pack.phases), len(pack.levels))


@transaction.atomic
def propose_pack(*, text: str, by: Principal, at: datetime, reason: str) -> ExperimentPack:
    """Store a pack as the next version for its experiment; it takes effect on approval.

    Raises `NotAllowed`, and `InvalidFields` with every fault and its line.
    """
    pack = checked_pack(text, by=by)
    assert pack.experiment  # noqa: S101  a pack without faults has one
    if not reason.strip():
        raise InvalidFields({"reason": ["Enter a reason. The approver will read it."]})
    experiment = Experiment.objects.select_for_update().get(pk=pack.experiment.pk)
    newest = ExperimentPack.objects.filter(experiment=experiment).order_by("-version").first()
    if newest and newest.text == text and newest.state != ChangeState.REJECTED:
        raise InvalidFields({"text": [f"Version {newest.version} is the same."]})
    proposed = ExperimentPack.objects.create(
        experiment=experiment,
        version=newest.version + 1 if newest else 1,
        text=text,
        markers=pack.markers,
        by=str(by)[:150],
        at=at,
        reason=reason.strip(),
    )
    publish(kind="pack.proposed", target=proposed, by=by, at=at, reason=proposed.reason)
    return proposed


def checked_pack(text: str, *, by: Principal) -> Pack:
    """Return the pack declared in a text.

    Raises `NotAllowed`, and `InvalidFields` with every fault and its line.
    """
    pack = read_pack(text, by=by)
    if pack.experiment and not may_propose_pack(by, pack.experiment.pk):
        raise NotAllowed(f"Only the OPG and liaisons of {pack.experiment} can propose its pack.")
    check_expressions(pack, by=by)
    if pack.faults:
        raise InvalidFields({"text": [str(fault) for fault in pack.faults]})
    return pack


@transaction.atomic
def decide_pack(
    *, proposed: ExperimentPack, approve: bool, by: Principal, at: datetime, reason: str = ""
) -> ExperimentPack:
    """Approve a pack, which takes effect at once, or reject it.

    Raises `NotAllowed`, `InvalidTransition`, `InvalidFields`, and `StaleState` if a newer version
    is in force.
    """
    if not may_edit_catalogue(by):
        raise NotAllowed("Only approvers and admins of the OPG can decide on packs.")
    if not approve and not reason.strip():
        raise InvalidFields({"reason": ["Enter a reason. The author of the pack will read it."]})
    experiment = Experiment.objects.select_for_update().get(pk=proposed.experiment_id)
    decided: dict[str, Any] = {
        "decided_by": str(by)[:150],
        "decided_at": at,
        "decision": reason.strip(),
    }
    if approve:
        now = pack_in_force(experiment.pk)
        if now and now.version > proposed.version:
            raise StaleState(
                f"Version {now.version} is in force. Propose this text again to return to it."
            )
    to = ChangeState.APPLIED if approve else ChangeState.REJECTED
    move(proposed, to=to, transitions=CHANGE_MOVES, field="state", **decided)
    if approve:
        _apply(proposed, experiment, by=by, at=at)
    kind = "pack.applied" if approve else "pack.rejected"
    publish(kind=kind, target=proposed, by=by, at=at, reason=reason.strip())
    return proposed


def _apply(
    proposed: ExperimentPack, experiment: Experiment, *, by: Principal, at: datetime
) -> None:
    pack = read_pack(proposed.text)  # the catalogue may have changed since it was proposed
    check_expressions(pack, by=by)
    if pack.faults:
        raise InvalidFields({"text": [str(fault) for fault in pack.faults]})
    gone = [
        known_error
        for known_error in _rows_of(experiment)
        if known_error.pk not in pack.known_errors and known_error.enabled
    ]
    for known_error in gone:
        known_error.enabled = False
    reason = f"Pack of {experiment}, version {proposed.version}: {proposed.reason}"
    save_together(known_errors=[*pack.known_errors.values(), *gone], by=by, at=at, reason=reason)
    _apply_codes(pack, experiment, proposed)
    for name, content in pack.parts.items():
        part = PACK_PARTS.get(name)
        part.apply(content, experiment=experiment, by=by, at=at, reason=reason)


def _apply_codes(pack: Pack, experiment: Experiment, proposed: ExperimentPack) -> None:
    """Write the exit codes of a pack.

    Codes that the pack no longer declares are deleted, or get their shipped meaning back.
    """
    old = {(meaning.kind, meaning.number): meaning for meaning in _codes_of(experiment)}
    for code, meaning in old.items():
        if meaning.pack and code not in pack.exit_codes:
            if meaning.shipped is None:
                meaning.delete()
                continue
            for name, value in meaning.shipped.items():
                setattr(meaning, name, value)
            meaning.pack = ""
            meaning.save()
    for code, new in pack.exit_codes.items():
        meaning = old.get(code, new)
        for name in CODE_VALUES:
            setattr(meaning, name, getattr(new, name))
        meaning.pack = experiment.key
        meaning.enabled = True
        meaning.source = f"Pack of {experiment.key}, version {proposed.version}"
        meaning.save()


def _rows_of(experiment: Experiment) -> list[KnownError]:
    known_errors = KnownError.objects.filter(pack=experiment.key, experiment=experiment)
    return list(known_errors.select_related("experiment").order_by("pk"))


def _codes_of(experiment: Experiment) -> list[ExitCodeMeaning]:
    return list(
        ExitCodeMeaning.objects.filter(scope=CodeScope.EXPERIMENT, name__iexact=experiment.key)
    )


def _text(code: ExitCodeMeaning) -> str:
    return f"{code.get_kind_display().lower()} {code.number}"
