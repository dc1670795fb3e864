"""The table of events: whom each concerns, and in which words. One that is not in it is told to few."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from apps.core.models import Event
from apps.notifications.enums import Group
from apps.production.models import Hold


class Concerned(Enum):
    """Somebody whom an event of a request may concern."""

    REQUESTER = "who made or submitted it"
    LIAISONS = "the liaisons of its experiment"
    APPROVERS = "who may approve it"
    WATCHERS = "who watches it"
    MENTIONED = "who is named"


_C, _G = Concerned, Group


@dataclass(frozen=True)
class Kind:
    """One kind of event: `NOVA-0219 <words>`, and for whom it counts as what."""

    words: str
    told: Mapping[Concerned, Group]


def _kind(words: str, group: Group, *concerned: Concerned, **others: Group) -> Kind:
    """Tell these people and the watchers; `approvers=…` and the like give a group of their own."""
    told = dict.fromkeys([*concerned, _C.WATCHERS], group)
    return Kind(words, told | {_C[name.upper()]: each for name, each in others.items()})


def _ours(words: str, group: Group) -> Kind:
    return _kind(words, group, _C.REQUESTER, _C.LIAISONS)


_NOBODY: Mapping[Concerned, Group] = {}
_WAITS = _kind("waits for approval", _G.PROGRESS, _C.REQUESTER, approvers=_G.TURN)
_CHANGES = _ours("needs changes", _G.TURN)
_APPROVED = _ours("was approved", _G.OUTCOME)
_REJECTED = _ours("was rejected", _G.OUTCOME)
_CANCELLED = _ours("was cancelled", _G.OUTCOME)

#: Kinds that name what was done (`approve`) and, of older requests, what they became (`approved`).
KINDS: dict[str, Kind] = {
    "request.created": Kind("was begun", _NOBODY),
    "request.edited": _kind("was changed", _G.CHANGE, _C.REQUESTER),
    "request.submit": _kind("was submitted", _G.PROGRESS, _C.LIAISONS),
    "request.check": Kind("is checked", _NOBODY),
    "request.pass": _WAITS,
    "request.submitted": _WAITS,
    "request.return": _ours("was given back by the checks", _G.TURN),
    "request.approve": _APPROVED,
    "request.approved": _APPROVED,
    "request.sign": _ours("has another signature", _G.PROGRESS),
    "request.withdraw_signature": _ours("has a signature less", _G.PROGRESS),
    "request.change": _kind("was changed after it was sent", _G.CHANGE, _C.REQUESTER, _C.APPROVERS),
    "request.request_changes": _CHANGES,
    "request.changes_requested": _CHANGES,
    "request.reject": _REJECTED,
    "request.rejected": _REJECTED,
    "request.queue": Kind("was put in the queue", _NOBODY),
    "request.test": _ours("is testing", _G.PROGRESS),
    "request.fail_test": _ours("failed its test", _G.TROUBLE),
    "request.start": _ours("is in production", _G.PROGRESS),
    "request.hold": _ours("was held", _G.TROUBLE),
    "request.release": _ours("was released", _G.PROGRESS),
    "request.dataset_defined": Kind("has a dataset defined for it", _NOBODY),
    "request.stage_accepted": _ours("goes on without failed jobs of a stage", _G.TROUBLE),
    "request.stage_not_accepted": _ours("waits again for the missing jobs of a stage", _G.PROGRESS),
    "request.complete": _ours("has all its jobs ended", _G.PROGRESS),
    "request.review": _ours("has its data quality looked at", _G.PROGRESS),
    "request.resume": _ours("was put back into production", _G.TROUBLE),
    "request.quality_asked": Kind("has its data quality judged again", _NOBODY),
    "request.quality_failed": _kind(
        "did not pass all checks of data quality", _G.TROUBLE, _C.REQUESTER, _C.LIAISONS, approvers=_G.TURN
    ),
    "request.quality_passed": _ours("passed its checks of data quality", _G.PROGRESS),
    "request.quality_posted": Kind("has another result of its data quality", _NOBODY),
    "request.waive": _ours("had a check of its data quality waived", _G.CHANGE),
    "request.withdraw_waiver": _ours("had a waiver of its data quality withdrawn", _G.CHANGE),
    "request.done": _ours("is done", _G.OUTCOME),
    "request.done_partial": _ours("is partially done", _G.OUTCOME),
    "request.cancel": _CANCELLED,
    "request.withdrawn": _CANCELLED,
    "request.supersede": _ours("was superseded", _G.OUTCOME),
    "request.reminder": Kind("still waits", _NOBODY),  # but for those whom it names
    "request.priority_set": _ours("has another priority", _G.CHANGE),
    "request.moved": _ours("was moved in the queue", _G.CHANGE),
    "hold.placed": _ours("has a stage held", _G.TROUBLE),
    "hold.lifted": _ours("has a stage released", _G.PROGRESS),
    "hold.reminder": Kind("has a stage that is still held", _NOBODY),  # but for those whom it names
    "webhook.disabled": Kind("is switched off: it failed for too long", _NOBODY),
}
#: The same of all production or an experiment: `NOVA <words>`, to those of any request under the hold.
WIDE: dict[str, Kind] = {
    "hold.placed": _ours("is held: no new jobs start", _G.TROUBLE),
    "hold.lifted": _ours("is held no more", _G.PROGRESS),
    "hold.reminder": Kind("is still held", _NOBODY),
}


def is_wide(event: Event) -> bool:
    """Tell whether an event is of a hold of more than one request."""
    return event.target_type == Hold._meta.label_lower


def told_of(event: Event) -> str:
    """Return an event in one line: `NOVA-0219 was approved`."""
    return f"{event.target_label} {kind_of(event).words}"


def kind_of(event: Event) -> Kind:
    """Return how such an event is told; of an unknown one, what its name says, to requester and watchers."""
    name = event.kind
    known = (WIDE if is_wide(event) else KINDS).get(name)
    if known is not None:
        return known
    words = name.partition(".")[2].replace("_", " ").replace(".", " ")
    return _kind(f"– {words}", _G.OTHER, _C.REQUESTER)


def group_for(kind: Kind, reasons: set[Concerned]) -> Group | None:
    """Return the first group, in the order of `Group`, for which somebody with these reasons is told; or none."""
    if _C.MENTIONED in reasons:
        return _G.TURN
    groups = {kind.told[reason] for reason in reasons if reason in kind.told}
    return next((group for group in Group if group in groups), None)
