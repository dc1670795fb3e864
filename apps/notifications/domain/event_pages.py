"""Kinds of events as documentation, from their declarations alone."""

from collections.abc import Iterator

from apps.core.domain.event_kinds import EventKind, declared_kinds
from apps.core.enums import Audience, Group
from apps.notifications.enums import DEFAULTS, Channel


def event_table() -> Iterator[str]:
    """Yield all kinds of events as lines of a Markdown table."""
    yield "| kind | timeline | notification | who is notified |"
    yield "| --- | --- | --- | --- |"
    for kind in declared_kinds():
        words = " / ".join([kind.words, *kind.words_for.values()])
        yield f"| `{kind.name}` | {kind.did} | {words} | {_audiences(kind)} |"


def _audiences(kind: EventKind) -> str:
    """Write who is notified as what: `turn: signers; progress: requester, watchers`."""
    return "; ".join(f"{group.value}: {', '.join(names)}" for group in Group if (names := _notified(kind, group)))


def _notified(kind: EventKind, group: Group) -> list[str]:
    return [audience.value for audience in Audience if kind.notifies.get(audience) == group]


def group_table() -> Iterator[str]:
    """Yield the groups of notifications as lines of a Markdown table."""
    yield "| group | events | mail, unless you choose otherwise |"
    yield "| --- | --- | --- |"
    for group in Group:
        words = "; ".join(phrase for kind in declared_kinds() for phrase in _phrases(kind, group))
        yield f"| {group.label.partition(':')[0]} | {words} | {DEFAULTS[Channel.MAIL, group].label} |"


def _phrases(kind: EventKind, group: Group) -> Iterator[str]:
    """Write what happened, with the audience where the requester is not among it: `was submitted (liaisons)`."""
    names = [name for name in _notified(kind, group) if name != Audience.WATCHERS]
    if names:
        only = "" if Audience.REQUESTER in names else f" ({', '.join(names)})"
        yield from (words + only for words in (kind.words, *kind.words_for.values()))
