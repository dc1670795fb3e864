"""What progress does when something happens elsewhere."""

from apps.core.domain.subscriptions import subscribe
from apps.core.models import Event
from apps.production.models import Request
from apps.progress.domain.production_report import freeze_report


@subscribe("progress.freeze_report", "request.done", "request.done_partial", "request.cancel", "request.supersede")
def on_request_closed(event: Event) -> None:
    """Keep how it ran for good; one that never had its signatures has not run."""
    request = Request.objects.filter(pk=event.target_id, approved_at__isnull=False).first()
    if request is not None:
        freeze_report(request=request, at=event.at)
