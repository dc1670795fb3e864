"""Texts about submitted jobs: their numbers, and what a move of the request does to them."""

from django import template

from apps.core.domain.quantities import count_noun
from apps.production.enums import Verb
from apps.production.models import Request
from apps.submission.domain.dispatch.recall import jobs_in_flight
from apps.submission.domain.dispatch.returns import planned_jobs_of
from apps.submission.models import Submission

register = template.Library()

#: How many ranges a line shows.
MOST_RANGES = 8
_ENDING = {Verb.CANCEL, Verb.SUPERSEDE}


@register.filter
def numbers_of_jobs(ranges: str) -> str:
    """`3,17-19` as `3, 17–19`, cut after `MOST_RANGES`."""
    parts = ranges.split(",", MOST_RANGES)
    return ", ".join(parts[:MOST_RANGES]).replace("-", "–") + (
        ", …" if len(parts) > MOST_RANGES else ""
    )


@register.filter
def job_numbers(array: Submission) -> str:
    """The numbers of the jobs of an array, such as `0–8`."""
    if array.indices:
        return numbers_of_jobs(array.indices)
    last = array.first + array.tasks - 1
    if last == array.first:
        return str(last)
    return f"{array.first}–{last}"


@register.simple_tag
def sent_jobs_note(request: Request, verb: str) -> str:
    """What a move does to planned and submitted jobs; empty if nothing, or if there are none."""
    if verb == Verb.RETURN_TO_QUEUE:
        planned = planned_jobs_of(request)
        if not planned:
            return ""
        return f"{count_noun(planned, 'planned job')} will be discarded. None was submitted."
    if verb not in _ENDING | {Verb.HOLD} or not (flight := jobs_in_flight(request)):
        return ""
    jobs = f"{count_noun(flight.jobs, 'submitted job')} on {' and '.join(flight.clusters)}"
    if verb in _ENDING:
        return f"{jobs} will be cancelled."
    if flight.can_hold:
        return f"{jobs}: queued jobs will be held, running jobs continue."
    return f"{jobs} will continue, because the scheduler cannot hold them."
