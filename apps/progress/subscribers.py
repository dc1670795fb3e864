"""Reactions to events of other apps."""

from django.utils import timezone

from apps.core.domain.subscriptions import subscribe
from apps.core.models import Event
from apps.production.models import Request
from apps.progress.domain.production_report import freeze_report
from apps.progress.domain.stage_history import count_request
from apps.progress.domain.stuck import note_stuck


@subscribe(
    "progress.note_stuck",
    "submission.failed",
    "submission.planned",
    "submission.planned_again",
    "request.stage_accepted",
    "request.stage_not_accepted",
)
def on_decision_about_jobs(event: Event) -> None:
    """Update the inbox at once after a decision about failed jobs."""
    note_stuck(at=timezone.now(), request=int(event.target_id))


@subscribe("progress.recount_stages", "cluster.removed")
def on_cluster_removed(event: Event) -> None:
    for request in Request.objects.filter(key__in=event.data["requests"]):
        count_request(request=request)


@subscribe("progress.freeze_report", "request.done", "request.done_partial", "request.cancel", "request.supersede")
def on_request_closed(event: Event) -> None:
    """Freeze the report; a request that was never approved has none."""
    request = Request.objects.filter(pk=event.target_id, approved_at__isnull=False).first()
    if request is not None:
        freeze_report(request=request, at=event.at)
