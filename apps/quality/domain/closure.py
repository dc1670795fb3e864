"""The closing check of data quality: what “done” and “partially done” require; see `settings.CLOSING_CHECKS`."""

from apps.production.domain.lifecycle.transitions import Transition
from apps.production.enums import RequestState
from apps.production.models import Request
from apps.quality.domain.standing import standing_of

#: How many checks a refusal names.
_NAMED = 3


def refusal_to_close(step: Transition, request: Request) -> str:
    """Return why the request cannot be closed now, or an empty text."""
    standing = standing_of(request)
    if not standing.is_judged:
        return "its data quality is not evaluated yet. The checks run automatically."
    if standing.is_stale:
        return "reports or thresholds have changed. The checks must run again first."
    if standing.open:
        titles = list(dict.fromkeys(f"“{one.result.title}”" for one in standing.open))
        more = f" and {len(titles) - _NAMED} more" if len(titles) > _NAMED else ""
        return f"{', '.join(titles[:_NAMED])}{more} did not pass. An approver can waive each result with a reason."
    if step.new == RequestState.DONE and standing.accepted:
        names = ", ".join(row.stage.name for row in standing.accepted)
        return f"{names} was accepted as is, without jobs that did not complete. Close the request as partially done."
    if step.new == RequestState.DONE and standing.in_part:
        return "a waiver says that the request is partially done."
    return ""
