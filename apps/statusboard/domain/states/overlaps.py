"""Compare the interval of a job with that of an outage, as pure functions.

All spans are half-open: [start, end).
"""

from datetime import UTC, datetime

from apps.statusboard.domain.states.timeline import Span
from apps.statusboard.enums import Meeting

#: The end of an ongoing span.
FOREVER = datetime.max.replace(tzinfo=UTC)


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
        return (
            Meeting.CONTAINED
            if began <= start < over
            else Meeting.TOUCHING
            if start == over
            else None
        )
    if end == began or start == over:
        return Meeting.TOUCHING
    if end < began or start > over:
        return None
    if began <= start and end <= over:
        return Meeting.CONTAINED
    return Meeting.CONTAINING if start <= began and over <= end else Meeting.PARTIAL
