"""What progress does when something happens elsewhere."""

from django.utils import timezone

from apps.core.domain.subscriptions import subscribe
from apps.core.models import Event
from apps.production.models import Request
from apps.progress.domain.production_report import freeze_report
from apps.progress.domain.stuck import note_stuck


@subscribe(
    "progress.note_stuck",
    "submission.failed",
    "submission.planned",
    "submission.planned_again",
    "request.stage_accepted",
    "request.stage_not_accepted",
)
def on_jobs_sent_again(event: Event) -> None:
    """Let the inbox follow at once what a person decides on failed jobs."""
    note_stuck(at=timezone.now(), request=int(event.target_id))


@subscribe("progress.freeze_report", "request.done", "request.done_partial", "request.cancel", "request.supersede")
def on_request_closed(event: Event) -> None:
    """Keep how it ran for good; one that never had its signatures has not run."""
    request = Request.objects.filter(pk=event.target_id, approved_at__isnull=False).first()
    if request is not None:
        freeze_report(request=request, at=event.at)
