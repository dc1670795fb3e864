"""Interval arithmetic of the status board: pure functions of claims about time. All spans are half-open: [start, end).

At one moment, of all that is claimed of a service, this order decides: a planned window, an incident that takes it
down, one that degrades it, an incident not heard of any more (unknown), a watch that reports nothing wrong (up);
and where nothing is claimed, it is unknown.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from apps.statusboard.enums import Cause, State

#: Every timeline begins here, so that it has no gap at its start.
BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)

_ORDER = {State.MAINTENANCE: 0, State.DOWN: 1, State.DEGRADED: 2, State.UNKNOWN: 3, State.UP: 4}


@dataclass(frozen=True)
class Span:
    """A stretch of time; without an end it is still going on."""

    started_at: datetime
    ended_at: datetime | None


@dataclass(frozen=True)
class Claim(Span):
    """What one input says of a stretch of time; `ref` is the id of the incident or window."""

    state: State
    cause: Cause
    ref: int | None = None

    def rank(self) -> tuple[int, datetime, str, int]:
        """Sort claims on one moment, the deciding one first."""
        return _ORDER[self.state], self.started_at, self.cause, self.ref or 0


def build(claims: Iterable[Claim], otherwise: Cause, begin: datetime = BEGINNING) -> list[Claim]:
    """Return the states from `begin` on: disjoint, in order, without a gap, the last without an end.

    Neighbours differ in state; the cause of a stretch is that of its first moment. `otherwise` is the cause of being
    unknown where nothing is claimed.
    """
    waiting = sorted(claims, key=lambda claim: claim.started_at, reverse=True)
    active: list[Claim] = []
    found: list[tuple[datetime, State, Cause, int | None]] = []
    for edge in _edges(waiting, begin):
        while waiting and waiting[-1].started_at <= edge:
            active.append(waiting.pop())
        active = [claim for claim in active if claim.ended_at is None or claim.ended_at > edge]
        best = min(active, key=Claim.rank, default=Claim(edge, None, State.UNKNOWN, otherwise))
        if not found or found[-1][1] != best.state:
            found.append((edge, best.state, best.cause, best.ref))
    ends = [edge for edge, *_ in found[1:]] + [None]
    return [Claim(edge, end, state, cause, ref) for (edge, state, cause, ref), end in zip(found, ends, strict=True)]


def _edges(claims: Iterable[Claim], begin: datetime) -> list[datetime]:
    times = {begin}
    for claim in claims:
        times.update(time for time in (claim.started_at, claim.ended_at) if time is not None and time > begin)
    return sorted(times)


def subtract(span: Span, holes: Iterable[Span]) -> list[Span]:
    """Return what is left of a span without the holes, in order."""
    left, start, end = [], span.started_at, span.ended_at
    for hole in sorted(holes, key=lambda hole: hole.started_at):
        if hole.ended_at is not None and hole.ended_at <= start:
            continue
        if end is not None and hole.started_at >= end:
            break
        if hole.started_at > start:
            left.append(Span(start, hole.started_at))
        if hole.ended_at is None:
            return left
        start = hole.ended_at
    if end is None or start < end:
        left.append(Span(start, end))
    return left


def hear(gaps: Iterable[Span], covered_until: datetime, heard: Span) -> tuple[list[Span], datetime]:
    """Add a sign of life that covers `heard` (it has an end); return the gaps, and until when all is covered.

    Signs may come in any order: a late one shortens or splits gaps already noted. The silence after
    `covered_until` is not among them.
    """
    if heard.ended_at is None:
        raise ValueError("a sign of life covers a time that ends")
    noted = [silence for silence in gaps if silence.ended_at is not None]
    if heard.ended_at > covered_until:
        noted.append(Span(covered_until, heard.ended_at))
        covered_until = heard.ended_at
    left = [piece for silence in noted for piece in subtract(silence, [heard])]
    return sorted(left, key=lambda span: span.started_at), covered_until


def clip(span: Span, within: Span) -> Span | None:
    """Return the part of a span inside another, or None; a `within` without length is a moment."""
    start = max(span.started_at, within.started_at)
    if within.started_at == within.ended_at:
        inside = span.started_at <= start == within.started_at and (span.ended_at is None or span.ended_at > start)
        return within if inside else None
    end = min((end for end in (span.ended_at, within.ended_at) if end is not None), default=None)
    return Span(start, end) if end is None or start < end else None
