"""What the moves to “done” and “partially done” ask of data quality: a closing check, by `settings.CLOSING_CHECKS`."""

from apps.production.domain.lifecycle.transitions import Transition
from apps.production.enums import RequestState
from apps.production.models import Request
from apps.quality.domain.standing import standing_of

#: A refusal names no more checks than this.
_NAMED = 3


def refusal_to_close(step: Transition, request: Request) -> str:
    """Return why the request cannot be closed now, or an empty text."""
    standing = standing_of(request)
    if not standing.is_judged:
        return "its data quality is not judged yet: the checks run by themselves."
    if standing.is_stale:
        return "something new was reported, or thresholds were changed: the checks must run again first."
    if standing.open:
        titles = list(dict.fromkeys(f"“{one.result.title}”" for one in standing.open))
        more = f" and {len(titles) - _NAMED} more" if len(titles) > _NAMED else ""
        return f"{', '.join(titles[:_NAMED])}{more} did not pass: an approver may waive each with a reason."
    if step.new == RequestState.DONE and standing.accepted:
        names = ", ".join(row.stage.name for row in standing.accepted)
        return f"{names} was taken as it is, without jobs that did not complete: it is partially done."
    if step.new == RequestState.DONE and standing.in_part:
        return "a check was waived with the word that it is partially done."
    return ""
