"""Interval arithmetic of the status board, as pure functions.

All spans are half-open: [start, end). Where claims about a service overlap, the first of these
decides: maintenance window, incident with state down, incident with state degraded, stale incident
(unknown), monitoring without a problem (up). Without a claim, the state is unknown.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from apps.statusboard.enums import Cause, State

#: The start of every timeline, so that no timeline begins with a gap.
BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
#: The end of an ongoing span.
FOREVER = datetime.max.replace(tzinfo=UTC)

_ORDER = {State.MAINTENANCE: 0, State.DOWN: 1, State.DEGRADED: 2, State.UNKNOWN: 3, State.UP: 4}


@dataclass(frozen=True)
class Span:
    """A time span; `ended_at` is None while it is ongoing."""

    started_at: datetime
    ended_at: datetime | None


@dataclass(frozen=True)
class Claim(Span):
    """The state that one input claims for a time span.

    `ref` is the primary key of the incident or window.
    """

    state: State
    cause: Cause
    ref: int | None = None

    def rank(self) -> tuple[int, datetime, str, int]:
        """Return the sort key of claims about the same moment: the deciding claim comes first."""
        return _ORDER[self.state], self.started_at, self.cause, self.ref or 0


def build(
    claims: Iterable[Claim], default_cause: Cause, begin: datetime = BEGINNING
) -> list[Claim]:
    """Return the states from `begin` on: disjoint, ordered, without gaps, the last one ongoing.

    Neighbours differ in state; the cause of a span is the cause at its start. `default_cause` is
    the cause of the unknown state where nothing is claimed.
    """
    waiting = sorted(claims, key=lambda claim: claim.started_at, reverse=True)
    edges = {begin}
    for claim in waiting:
        if claim.started_at > begin:
            edges.add(claim.started_at)
        if claim.ended_at is not None and claim.ended_at > begin:
            edges.add(claim.ended_at)

    active: list[Claim] = []
    deciding: list[Claim] = []
    for edge in sorted(edges):
        while waiting and waiting[-1].started_at <= edge:
            active.append(waiting.pop())
        active = [claim for claim in active if claim.ended_at is None or claim.ended_at > edge]
        unclaimed = Claim(edge, None, State.UNKNOWN, default_cause)
        best = min(active, key=Claim.rank, default=unclaimed)
        if not deciding or deciding[-1].state != best.state:
            deciding.append(replace(best, started_at=edge))

    timeline = []
    ends = [claim.started_at for claim in deciding[1:]] + [None]
    for claim, end in zip(deciding, ends, strict=True):
        timeline.append(replace(claim, ended_at=end))
    return timeline


def cut_into_phases(
    span: Span, changes: Sequence[tuple[datetime, State]]
) -> list[tuple[Span, State]]:
    """Return the states within a span, from changes ordered by time.

    The first state also holds before its change. Neighbours differ in state.
    """
    starts: list[tuple[datetime, State]] = []
    for place, (at, state) in enumerate(changes):
        if place == 0 or at <= span.started_at:
            starts = [(span.started_at, state)]
        elif (span.ended_at is None or at < span.ended_at) and starts[-1][1] != state:
            starts.append((at, state))
    ends = [at for at, _ in starts[1:]] + [span.ended_at]
    return [(Span(at, end), state) for (at, state), end in zip(starts, ends, strict=True)]


def subtract(span: Span, holes: Iterable[Span]) -> list[Span]:
    """Return the parts of a span outside the holes, in order."""
    left = []
    start = span.started_at
    end = span.ended_at
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


def add_heartbeat(
    gaps: Iterable[Span], covered_until: datetime, covered: Span
) -> tuple[list[Span], datetime]:
    """Add a heartbeat that covers a finite span; return the gaps and the end of coverage.

    Heartbeats may arrive in any order: a late one shortens or splits recorded gaps. The gap after
    `covered_until` is not included.
    """
    if covered.ended_at is None:
        raise ValueError("a heartbeat must cover a span with an end")
    recorded = [gap for gap in gaps if gap.ended_at is not None]
    if covered.ended_at > covered_until:
        recorded.append(Span(covered_until, covered.ended_at))
        covered_until = covered.ended_at
    left: list[Span] = []
    for gap in recorded:
        left += subtract(gap, [covered])
    return sorted(left, key=lambda span: span.started_at), covered_until


def clip(span: Span, within: Span) -> Span | None:
    """Return the intersection of two spans, or None; a `within` of zero length is a moment."""
    start = max(span.started_at, within.started_at)
    if within.started_at == within.ended_at:
        inside = span.started_at <= start == within.started_at and (
            span.ended_at is None or span.ended_at > start
        )
        return within if inside else None
    end = min((end for end in (span.ended_at, within.ended_at) if end is not None), default=None)
    return Span(start, end) if end is None or start < end else None
