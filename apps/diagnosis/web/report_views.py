"""The page of how a request ran: live while it is open, its frozen report afterwards."""

from typing import Any

from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.http import require_safe

from apps.accounts.web.request import AuthenticatedRequest
from apps.diagnosis.domain.request_report import read_frozen, report_of
from apps.diagnosis.models import RequestReport
from apps.diagnosis.web.report_links import with_links
from apps.production.models import Request


@require_safe
def report_now(request: AuthenticatedRequest, key: str) -> HttpResponse:
    """Show the report as of now, or go to the frozen one."""
    visible = Request.objects.visible_to(request.user).select_related("experiment")
    wanted: Request = get_object_or_404(visible, key=key)
    kept = RequestReport.objects.filter(request=wanted).first()
    if kept is not None:
        return redirect("diagnosis:frozen-report", digest=kept.sha256)
    now = timezone.now()
    return _page(
        request, {"object": wanted, "report": with_links(report_of(wanted, at=now), request=wanted), "as_of": now}
    )


@require_safe
def frozen_report(request: AuthenticatedRequest, digest: str) -> HttpResponse:
    """Show a report by the hash of its content."""
    visible = RequestReport.objects.filter(request__in=Request.objects.visible_to(request.user))
    kept: RequestReport = get_object_or_404(visible.select_related("request__experiment"), sha256=digest)
    report = with_links(read_frozen(kept), request=kept.request)
    return _page(request, {"object": kept.request, "report": report, "as_of": kept.frozen_at, "digest": kept.sha256})


def _page(request: AuthenticatedRequest, context: dict[str, Any]) -> HttpResponse:
    return render(request, "diagnosis/request_report.html", context)
