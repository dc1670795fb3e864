"""Celery tasks of data quality: each may be lost, killed or run twice, and the sweep goes on."""

import logging

from celery import shared_task
from django.utils import timezone

from apps.core.errors import DomainError
from apps.production.enums import PORTAL, RequestState
from apps.production.models import Request
from apps.quality.domain import runs
from apps.quality.domain.standing import current_run

log = logging.getLogger(__name__)


@shared_task(acks_late=True)
def check_request(*, request_id: int) -> None:
    """Run what waits for a request, and close it if nothing is against that."""
    request = _read(request_id)
    if request is None or request.state != RequestState.DATA_QUALITY:
        return
    try:
        run = current_run(request)
        if run is None or runs.must_run_again(run, request, timezone.now()):
            runs.ask_for_run(request=request, by=PORTAL, at=timezone.now())
        runs.run_checks(request=request, at=timezone.now())
        runs.close_if_passed(request=request, at=timezone.now())
    except DomainError:  # somebody has moved it on meanwhile
        return


@shared_task
def check_all() -> None:
    """Look at every request in data quality: what was lost, what has changed, what can be closed."""
    waiting = Request.objects.filter(state=RequestState.DATA_QUALITY).order_by("pk").values_list("pk", flat=True)
    for pk in list(waiting):
        try:
            check_request(request_id=pk)
        except Exception:  # one that cannot be judged must not keep the others waiting
            log.exception("the data quality of request %s could not be judged", pk)


def _read(request_id: int) -> Request | None:
    rows = Request.objects.select_related("experiment", "workflow__type", "created_by", "submitted_by")
    found: Request | None = rows.filter(pk=request_id).first()
    return found
