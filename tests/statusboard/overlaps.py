"""How a job overlaps an outage, in Python: what the counts in the database are compared with.

All spans are half-open: [start, end).
"""

from apps.statusboard.domain.states.timeline import FOREVER, Span
from apps.statusboard.enums import Meeting


def meeting(job: Span, outage: Span) -> Meeting | None:
    """Return how a job overlaps an outage; None if it does not touch it.

    A span without an end is ongoing. A job of zero length is the moment of its start. An outage of
    zero length overlaps nothing.
    """
    start = job.started_at
    end = job.ended_at or FOREVER
    began = outage.started_at
    over = outage.ended_at or FOREVER
    if over <= began:
        return None
    if start == end:
        if began <= start < over:
            return Meeting.CONTAINED
        return Meeting.TOUCHING if start == over else None
    if end == began or start == over:
        return Meeting.TOUCHING
    if end < began or start > over:
        return None
    if began <= start and end <= over:
        return Meeting.CONTAINED
    return Meeting.CONTAINING if start <= began and over <= end else Meeting.PARTIAL
