"""Reactions to events of other apps."""

from django.utils import timezone

from apps.core.domain.subscriptions import subscribe
from apps.core.models import Event
from apps.production.enums import Verb
from apps.production.events import kind_of_move
from apps.production.models import Request
from apps.progress.domain.needs import note_attention
from apps.progress.domain.production_report import freeze_report
from apps.progress.domain.stage_history import count_request
from apps.progress.domain.stored_forecasts import keep_forecasts, keep_queue_forecasts, note_starts

#: Moves of requests that are not approved yet.
_BEFORE_APPROVAL = {Verb.CHECK, Verb.PASS, Verb.RETURN, Verb.APPROVE, Verb.REQUEST_CHANGES}


@subscribe(
    "progress.note_attention",
    "submission.failed",
    "submission.planned",
    "submission.planned_again",
    "submission.ended",
    "request.edited",
    "request.priority_set",
    "request.stage_accepted",
    "request.stage_not_accepted",
    *(kind_of_move(verb) for verb in Verb if verb not in _BEFORE_APPROVAL),
)
def on_progress(event: Event) -> None:
    """Update forecast and attention after a move, or after a decision about failed jobs."""
    now = timezone.now()
    pk = int(event.target_id)
    if event.kind == kind_of_move(Verb.QUEUE):
        note_starts(at=now)
    keep_forecasts(at=now, requests=Request.objects.filter(pk=pk))
    note_attention(at=now, request_id=pk)


@subscribe(
    "progress.forecast_queue",
    "request.moved",
    "request.priority_set",
    "share.set",
)
def on_queue_changed(event: Event) -> None:
    keep_queue_forecasts(at=timezone.now())


@subscribe("progress.forecast_all", "hold.placed", "hold.lifted")
def on_hold_changed(event: Event) -> None:
    """Update all forecasts, because a hold also stops the stages of running requests."""
    keep_forecasts(at=timezone.now())


@subscribe("progress.recount_stages", "cluster.removed")
def on_cluster_removed(event: Event) -> None:
    requests = Request.objects.filter(key__in=event.data["requests"])
    for request in requests:
        count_request(request=request)
    keep_forecasts(at=timezone.now(), requests=requests)


@subscribe(
    "progress.freeze_report",
    "request.done",
    "request.done_partial",
    "request.cancel",
    "request.supersede",
)
def on_request_closed(event: Event) -> None:
    """Freeze the report. A request that was never approved has none."""
    request = Request.objects.filter(pk=event.target_id, approved_at__isnull=False).first()
    if request is not None:
        freeze_report(request=request, at=event.at)
