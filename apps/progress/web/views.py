"""The progress of a request, and its production report, current or frozen."""

from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any

from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.http import require_safe

from apps.accounts.web.http_request import AuthenticatedRequest
from apps.core.web.sorting import read_sort, sort_rows
from apps.production.models import Request
from apps.progress.domain.production_report import read_frozen, report_of
from apps.progress.domain.progress import progress_now
from apps.progress.models import ProductionReport
from apps.progress.web.report_links import with_links

#: The columns by which the stages of a report can be sorted. Without one, they keep their order.
STAGE_ORDERS: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "stage": itemgetter("stage"),
    "jobs": itemgetter("jobs"),
    "failed": itemgetter("failed"),
    "retried": itemgetter("retried"),
    "efficiency": itemgetter("efficiency"),
    "core": itemgetter("core_hours"),
    "wasted": itemgetter("wasted_core_hours"),
    "median": itemgetter("wall_p50"),
    "p95": itemgetter("wall_p95"),
    "longest": itemgetter("wall_max"),
}


@require_safe
def request_progress(request: AuthenticatedRequest, key: str) -> HttpResponse:
    """Render only the panel for htmx, else a whole page."""
    production_request = get_object_or_404(Request.objects.visible_to(request.user), key=key)
    context = {
        "object": production_request,
        "progress": progress_now(production_request, at=timezone.now()),
    }
    if request.headers.get("HX-Request"):
        template = "progress/_progress.html"
    else:
        template = "progress/progress.html"
    return render(request, template, context)


@require_safe
def report_now(request: AuthenticatedRequest, key: str) -> HttpResponse:
    """Show the current report, or redirect to the frozen one."""
    visible = Request.objects.visible_to(request.user).select_related("experiment")
    production_request: Request = get_object_or_404(visible, key=key)
    kept = ProductionReport.objects.filter(request=production_request).first()
    if kept is not None:
        return redirect("progress:frozen-report", digest=kept.sha256)
    now = timezone.now()
    report = with_links(report_of(production_request, at=now), request=production_request)
    context = {"object": production_request, "report": report, "as_of": now}
    return _report_page(request, context)


@require_safe
def frozen_report(request: AuthenticatedRequest, digest: str) -> HttpResponse:
    """Show a report by the hash of its content."""
    visible = ProductionReport.objects.filter(request__in=Request.objects.visible_to(request.user))
    kept: ProductionReport = get_object_or_404(
        visible.select_related("request__experiment"), sha256=digest
    )
    report = with_links(read_frozen(kept), request=kept.request)
    context = {
        "object": kept.request,
        "report": report,
        "as_of": kept.frozen_at,
        "digest": kept.sha256,
    }
    return _report_page(request, context)


def _report_page(request: AuthenticatedRequest, context: dict[str, Any]) -> HttpResponse:
    """Render a report with its stages in the order of `?sort=`."""
    sort = read_sort(request, STAGE_ORDERS, default="")
    report = context["report"]
    if sort:
        report = {**report, "stages": sort_rows(report["stages"], STAGE_ORDERS, sort)}
    jobs_of_stages = list(context["object"].stages.values_list("jobs", flat=True))
    requested_jobs = None if None in jobs_of_stages else sum(jobs_of_stages)
    context = {**context, "report": report, "sort": sort, "requested_jobs": requested_jobs}
    return render(request, "progress/report.html", context)
