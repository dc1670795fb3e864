"""Celery tasks of data quality. Each may be lost, killed or run twice."""

import logging

from celery import shared_task
from django.utils import timezone

from apps.core.errors import DomainError
from apps.production.enums import PORTAL, RequestState
from apps.production.models import Request
from apps.quality.domain import runs
from apps.quality.domain.data_quality import current_run

log = logging.getLogger(__name__)


@shared_task(name="quality.check_request", acks_late=True)
def check_request(*, request_id: int) -> None:
    """Run the checks on a request if due, and close it if they pass."""
    request = Request.objects.select_related(*runs.RELATED).filter(pk=request_id).first()
    if request is None or request.state != RequestState.DATA_QUALITY:
        return
    try:
        run = current_run(request)
        if run is None or runs.must_run_again(run, request, timezone.now()):
            runs.ask_for_run(request=request, by=PORTAL, at=timezone.now())
        runs.run_checks(request=request, at=timezone.now())
        runs.close_if_passed(request=request, at=timezone.now())
    except DomainError:  # The request was moved in the meantime.
        return


@shared_task(name="quality.check_all")
def check_all() -> None:
    """Check every request in data quality for lost runs, changes, and whether it can be closed."""
    waiting = (
        Request.objects.filter(state=RequestState.DATA_QUALITY)
        .order_by("pk")
        .values_list("pk", flat=True)
    )
    for pk in list(waiting):
        try:
            check_request(request_id=pk)
        except Exception:  # One failure must not stop the other requests.
            log.exception("data quality checks of request %s failed", pk)
