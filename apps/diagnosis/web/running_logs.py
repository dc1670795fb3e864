"""The page that follows the log of a job while it runs."""

import re

from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_safe

from apps.accounts.web.http_request import AuthenticatedRequest
from apps.diagnosis.domain.reading.running_logs import NOTICES, Seen, running_job, running_log
from apps.diagnosis.enums import Stream

_SEEN = re.compile(r"(\d{1,20})-(\d{1,15})-(\d{1,10})")


@require_safe
def open_log(request: AuthenticatedRequest) -> HttpResponse:
    """Go to the log of the running job in the query, or back to the running jobs."""
    cluster = request.GET.get("cluster", "")[:64]
    job_id = request.GET.get("job", "").strip()[:64]
    is_known = job_id and running_job(user=request.user, cluster=cluster, job_id=job_id)
    if is_known and "/" not in cluster + job_id:
        return redirect("diagnosis:running-log", cluster=cluster, job_id=job_id)
    messages.error(
        request, f"No script of a job {job_id} on {cluster} is captured, or you do not have access."
    )
    return redirect(f"{reverse('jobs:list')}?tab=running")


@require_safe
def follow(request: AuthenticatedRequest, cluster: str, job_id: str) -> HttpResponse:
    """Show the end of a running job's log; the fragment with the lines polls while the job runs."""
    archived = running_job(user=request.user, cluster=cluster, job_id=job_id)
    if archived is None:
        raise Http404("No such job.")
    seen = _SEEN.fullmatch(request.GET.get("seen", ""))
    before = None
    if seen:
        before = Seen(*(int(number) for number in seen.groups()))
    if request.GET.get("stream") == Stream.STDERR:
        stream = Stream.STDERR
    else:
        stream = Stream.STDOUT
    log = running_log(archived, job_id=job_id, stream=stream, before=before)
    notice = log.notice or request.GET.get("notice", "")  # once seen, it stays
    if request.htmx:
        template = "diagnosis/log/_running_log.html"
    else:
        template = "diagnosis/log/running_log.html"
    context = {"log": log, "notice": notice, "notice_text": NOTICES.get(notice, "")}
    return render(request, template, {**context, "is_followed": "pause" not in request.GET})
