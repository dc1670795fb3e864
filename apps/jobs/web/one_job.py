"""Pages of one job, including jobs whose records are archived."""

from collections.abc import Callable
from functools import wraps

from django.http import Http404, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render

from apps.accounts.web.http_request import AuthenticatedRequest
from apps.jobs.domain.months.archived_records import archived_job
from apps.jobs.models import Job


def of_job(
    view: Callable[[AuthenticatedRequest, Job], HttpResponseBase],
) -> Callable[..., HttpResponseBase]:
    """Pass the job in the URL to a view; return 404 if the user may not see it.

    For a job whose record is archived, return the page that says so.
    """

    @wraps(view)
    def wrapped(request: AuthenticatedRequest, pk: int) -> HttpResponseBase:
        job = (
            Job.objects.visible_to(request.user)
            .select_related("cluster", "experiment")
            .filter(pk=pk)
            .first()
        )
        return view(request, job) if job else archived_or_404(request, pk)

    return wrapped


def archived_or_404(request: AuthenticatedRequest, pk: int) -> HttpResponse:
    """Return the page of an archived job to users who may see the job.

    Raises `Http404` for others.
    """
    archived = archived_job(pk, user=request.user)
    if archived is None:
        raise Http404
    return render(request, "jobs/archived/gone.html", {"job": archived}, status=410)
