"""Celery tasks of production requests."""

from celery import shared_task
from django.utils import timezone

from apps.core.errors import InvalidTransition
from apps.production.domain.approvals import reminders
from apps.production.domain.lifecycle import moves
from apps.production.domain.lineage import dataset_parts
from apps.production.domain.outputs import counts
from apps.production.domain.priority import rescoring
from apps.production.enums import RequestState
from apps.production.models import Request


@shared_task(name="production.check_request", acks_late=True)
def check_request(*, request_id: int) -> None:
    """Check a submitted request. Do nothing if it is no longer submitted."""
    request = Request.objects.filter(pk=request_id).first()
    if request is not None:
        try:
            moves.check_request(request=request, at=timezone.now())
        except InvalidTransition:
            return


@shared_task(name="production.check_waiting")
def check_waiting() -> None:
    for pk in Request.objects.filter(state=RequestState.SUBMITTED).values_list("pk", flat=True):
        check_request(request_id=pk)


@shared_task(name="production.count_reports")
def count_reports() -> None:
    counts.count_reports(at=timezone.now())


@shared_task(name="production.rescore_all")
def rescore_all() -> None:
    rescoring.rescore_all(at=timezone.now())


@shared_task(name="production.define_waiting")
def define_waiting() -> None:
    dataset_parts.define_parts(at=timezone.now())


@shared_task(name="production.remind_of_waiting")
def remind_of_waiting() -> None:
    """Send reminders of requests that have waited too long, and of active holds."""
    reminders.remind_of_waiting(at=timezone.now())
    reminders.remind_of_holds(at=timezone.now())
