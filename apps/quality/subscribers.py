"""Reactions to events of other apps."""

from apps.core.domain.events import target_of
from apps.core.domain.subscriptions import subscribe
from apps.core.errors import InvalidTransition
from apps.core.models import Event
from apps.production.enums import PORTAL
from apps.quality.domain.data_quality import current_run
from apps.quality.domain.runs import ask_for_run


@subscribe("quality.run_checks", "request.review")
def on_review_started(event: Event) -> None:
    """Queue a run of the checks, unless the request has left data quality in the meantime."""
    request = target_of(event)
    if request is not None and current_run(request) is None:
        try:
            ask_for_run(request=request, by=PORTAL, at=event.at)
        except InvalidTransition:
            return
