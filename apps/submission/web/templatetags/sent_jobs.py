"""How jobs that were sent are told: which they are, and what becomes of them where a request is moved."""

from django import template

from apps.production.enums import Verb
from apps.production.models import Request
from apps.submission.domain.overview import flight_of

register = template.Library()

#: Numbers and ranges of jobs that a line shows.
MOST_RANGES = 8
_ENDING = {Verb.CANCEL, Verb.SUPERSEDE}


@register.filter
def numbers_of_jobs(ranges: str) -> str:
    """`3,17-19` as `3, 17–19`, so that it is not read as one number; many are cut."""
    parts = ranges.split(",", MOST_RANGES)
    return ", ".join(parts[:MOST_RANGES]).replace("-", "–") + (", …" if len(parts) > MOST_RANGES else "")


@register.simple_tag
def sent_jobs_note(request: Request, verb: str) -> str:
    """Say what a move does to jobs that schedulers have; empty where it does nothing, or they have none."""
    if verb not in _ENDING | {Verb.HOLD} or not (flight := flight_of(request)):
        return ""
    many = flight.jobs != 1
    told = (
        f"{flight.jobs:,} job{'s' if many else ''} of it {'are' if many else 'is'} with {' and '.join(flight.clusters)}"
    )
    if verb in _ENDING:
        return f"{told}: the portal ends them there."
    if flight.can_hold:
        return f"{told}: those that wait are held in its queue, those that run go on."
    return f"{told}, which cannot hold them: they go on."
