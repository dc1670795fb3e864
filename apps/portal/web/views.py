"""Home, the page of a job, the search, and the health of the portal."""

import hmac

from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_safe

from apps.accounts.domain.users import note_visit
from apps.accounts.permissions import may_see_health
from apps.accounts.web.http_request import AuthenticatedRequest
from apps.accounts.web.saved_views import views_context
from apps.clusters.schedulers.base import JobState
from apps.core.domain.tokens import bearer_token
from apps.diagnosis.domain.verdicts.archived import archived_diagnosis
from apps.diagnosis.web.forms import CorrectionForm
from apps.jobs.domain.collection.origin import log_location
from apps.jobs.domain.months.archived_records import archived_job
from apps.jobs.domain.records.energy import energy_of
from apps.jobs.domain.records.jobs import jobs_for_list
from apps.notifications.domain.atom_feeds import search_address
from apps.portal.pages.health.page import health_page
from apps.portal.pages.health.storage import storage_page
from apps.portal.pages.home import home_page
from apps.portal.pages.job import job_page
from apps.portal.pages.search import find
from apps.portal.pages.text_search import text_search_page
from apps.search.domain.query.parser import LONGEST_QUERY


@require_safe
def home(request: AuthenticatedRequest) -> HttpResponse:
    at = timezone.now()
    # The page that refreshes itself is no visit.
    if request.method == "GET" and not request.htmx:
        note_visit(user=request.user, at=at)
    page = home_page(user=request.user, at=at)
    return render(request, "portal/home.html", vars(page))


@require_safe
def job(request: AuthenticatedRequest, pk: int) -> HttpResponse:
    job = jobs_for_list(request.user).filter(pk=pk).first()
    if job is None:
        return _archived_job(request, pk)

    page = job_page(job=job, user=request.user, at=timezone.now())
    verdict = page.diagnosis.verdict
    correction = CorrectionForm(initial={"verdict": verdict.verdict} if verdict else {})
    ending = JobState(job.state).text  # Such as "failed · exit 65", "failed · signal 11"
    if job.signal:
        ending += f" · signal {job.signal}"
    elif job.exit_code:
        ending += f" · exit {job.exit_code}"
    context = {**vars(page), "correction": correction, "job_ending": ending}
    return render(request, "portal/job/job.html", context)


def _archived_job(request: AuthenticatedRequest, pk: int) -> HttpResponse:
    """Show a job as its archive has it. Raises `Http404`."""
    archived = archived_job(pk, user=request.user)
    if archived is None:
        raise Http404
    context = {
        "job": archived,
        "job_request": None,
        "diagnosis": archived_diagnosis(archived),
        "log_location": log_location(archived),
        "energy": energy_of(archived),
    }
    return render(request, "portal/job/archived.html", context)


@require_safe
def search(request: AuthenticatedRequest) -> HttpResponse:
    """Show the results, or redirect to a single result."""
    query = request.GET.get("q", "")[:200]
    results = find(query=query, user=request.user, at=timezone.now())
    if not request.headers.get("HX-Request") and (url := results.single_url()):
        return redirect(url)
    return render(request, "portal/find.html", {"search_text": query.strip(), "results": results})


@require_safe
def text_search(request: AuthenticatedRequest) -> HttpResponse:
    """Show the jobs whose logs and scripts match; the query of the address says all."""
    page = text_search_page(
        text=request.GET.get("q", "")[: LONGEST_QUERY + 1],
        after=request.GET.get("after", ""),
        user=request.user,
        at=timezone.now(),
    )
    feed_url = ""
    if page.text and not page.problem:
        preferences = getattr(request.user, "notification_preferences", None)
        feed_url = search_address(preferences, page.text)
    context = {
        "page": page,
        "longest": LONGEST_QUERY,
        "feed_url": feed_url,
        **views_context(request),
    }
    return render(request, "portal/search/search.html", context)


@require_safe
def health(request: AuthenticatedRequest) -> HttpResponse:
    """Show the health of the portal to the OPG and superusers.

    It contains paths and error messages of hosts.
    """
    if not may_see_health(request.user):
        raise PermissionDenied
    return render(request, "portal/health.html", health_page(at=timezone.now()))


@require_safe
def storage(request: AuthenticatedRequest) -> HttpResponse:
    """Show what the tables hold, cost and keep, to the OPG and superusers."""
    if not may_see_health(request.user):
        raise PermissionDenied
    page = storage_page(at=timezone.now())
    return render(request, "portal/storage.html", {"page": page})


# A monitoring system has a token and no session.
@login_not_required
@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """Return the figures of the health page for Prometheus, with METRICS_TOKEN or for the OPG."""
    token = bearer_token(request.headers.get("Authorization", ""))
    by_token = settings.METRICS_TOKEN and hmac.compare_digest(
        token.encode(), settings.METRICS_TOKEN.encode()
    )
    if by_token or may_see_health(request.user):
        from prometheus_client import CONTENT_TYPE_LATEST

        from apps.portal.pages.health.metrics import metrics_text

        return HttpResponse(metrics_text(at=timezone.now()), content_type=CONTENT_TYPE_LATEST)
    if request.user.is_authenticated:
        raise PermissionDenied
    challenge = {"WWW-Authenticate": 'Bearer realm="metrics"'}
    return HttpResponse(
        "Token required: see METRICS_TOKEN.\n", "text/plain", 401, headers=challenge
    )
