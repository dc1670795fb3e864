"""Kinds of events: their wording and their audiences.

Every app declares its kinds in its `events.py`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from apps.core.enums import Audience, Group
from apps.core.models import Event

#: The people of an experiment who work on a request.
TEAM = (Audience.REQUESTER, Audience.LIAISONS)


@dataclass(frozen=True)
class EventKind:
    """One kind of event.

    `did` follows the actor in a timeline (`okafor approved the request`), with `{old}`, `{new}` and
    keys of the event's data filled in. `labels` are the names of states on pages, by their stored
    names. `predicate` follows the target in a notification or feed (`NOVA-0219 was approved`);
    `predicate_for` replaces it by type of target. `title` replaces both where the target cannot be
    the subject of a sentence (`New kind of failure: {target}`). `notifies` maps audiences to
    groups; `mentions` is the key of usernames in the data. `former_names` are the names in stored
    events, which never change.
    """

    name: str
    did: str
    predicate: str
    notifies: Mapping[Audience, Group] = field(default_factory=dict)
    predicate_for: Mapping[str, str] = field(default_factory=dict)
    mentions: str = "mentioned"
    labels: Mapping[str, str] = field(default_factory=dict)
    title: str = ""
    former_names: tuple[str, ...] = ()


class UndeclaredEvent(LookupError):
    """No `events.py` declares this kind."""


_kinds: dict[str, EventKind] = {}
_by_former_name: dict[str, EventKind] = {}
_states: dict[str, Mapping[str, str]] = {}
_administrative: set[str] = set()


def declare(*kinds: EventKind) -> None:
    """Register kinds. Raises `ValueError` for a duplicate name."""
    for kind in kinds:
        if kind.name in _kinds:
            raise ValueError(f"two kinds of events are named {kind.name}")
        _kinds[kind.name] = kind
        _by_former_name.update(dict.fromkeys(kind.former_names, kind))


def declare_states(target_type: str, labels: Mapping[str, str]) -> None:
    """Name the states of a type of target, by their stored names, in the values of its events."""
    _states[target_type] = labels


def declare_administrative(*subjects: str) -> None:
    """List events of these subjects, such as `membership`, among the changes that admins made.

    A whole name, such as `account.mapped`, stands for one kind.
    """
    _administrative.update(subjects)


def administrative_kinds() -> list[str]:
    """Return the names of the kinds of events that are changes by admins, sorted."""
    names = []
    for name in sorted(_kinds):
        if name in _administrative or name.partition(".")[0] in _administrative:
            names.append(name)
    return names


def value_in_words(event: Event, value: str) -> str:
    """Return the old or new value of an event as pages show it: `awaiting approval`."""
    labels = {**_states.get(event.target_type, {}), **kind_of(event).labels}
    return labels.get(value, value)


def to(group: Group, *audiences: Audience, **others: Group) -> dict[Audience, Group]:
    """Notify these audiences and the watchers as `group`.

    Keywords override the group of one audience: `approvers=…`.
    """
    notifies = dict.fromkeys([*audiences, Audience.WATCHERS], group)
    for name, other in others.items():
        notifies[Audience(name)] = other
    return notifies


def kind_named(name: str) -> EventKind:
    """Return a declared kind. Raises `UndeclaredEvent`."""
    try:
        return _kinds[name]
    except KeyError:
        raise UndeclaredEvent(f"no events.py declares the kind {name}") from None


def declared_kinds() -> list[EventKind]:
    """Return all kinds, sorted by name."""
    return [_kinds[name] for name in sorted(_kinds)]


def kind_of(event: Event) -> EventKind:
    """Return the kind of an event, also by a former name.

    If its app is no longer installed, return a kind worded by its name.
    """
    known = _kinds.get(event.kind) or _by_former_name.get(event.kind)
    if known:
        return known
    name = event.kind.partition(".")[2].replace("_", " ").replace(".", " ")
    return EventKind(event.kind, name, f"– {name}", to(Group.OTHER, Audience.REQUESTER))


def what_happened(event: Event) -> str:
    """Return the predicate of an event, which follows its target: `was approved`."""
    kind = kind_of(event)
    return kind.predicate_for.get(event.target_type, kind.predicate)


def headline(event: Event) -> str:
    """Return an event in one line: `NOVA-0219 was approved`."""
    title = kind_of(event).title
    if title:
        return title.replace("{target}", event.target_label)
    return f"{event.target_label} {what_happened(event)}"


def what_was_done(event: Event) -> str:
    """Return the words that follow the actor of an event: `approved the request`."""
    kind = kind_of(event)
    data = event.data if isinstance(event.data, dict) else {}
    old = kind.labels.get(event.old, event.old)
    new = kind.labels.get(event.new, event.new)
    return kind.did.format_map(_Values({**data, "old": old, "new": new}))


def kind_in_words(name: str) -> str:
    """Return what events of a stored kind say was done: `changed the priority from … to …`."""
    kind = kind_of(Event(kind=name))
    return re.sub(r"\{[^{}]*\}", "…", kind.did)


class _Values(dict[str, object]):
    """Data of an event; a missing value is shown as a dash."""

    def __missing__(self, name: str) -> str:
        return "–"
