"""Pages and partials: a job's verdict and log, and the failed jobs behind each number."""

from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from apps.accounts.web.http_request import AuthenticatedRequest
from apps.core.domain.pagination import newest_first
from apps.core.web.errors import show_errors
from apps.diagnosis.domain.reading.log_windows import log_view
from apps.diagnosis.domain.verdicts import harvest
from apps.diagnosis.domain.verdicts.correction import job_diagnosis, override_verdict
from apps.diagnosis.domain.verdicts.experience import experience_of
from apps.diagnosis.domain.verdicts.quotes import quote_evidence
from apps.diagnosis.enums import VerdictKind
from apps.diagnosis.filters import FailedJobs
from apps.diagnosis.models import Verdict
from apps.diagnosis.permissions import may_correct_verdict
from apps.diagnosis.web.forms import CorrectionForm
from apps.jobs.domain.records.calendar_months import unlisted_months
from apps.jobs.models import Job
from apps.jobs.web.one_job import of_job


def _verdict_context(
    request: AuthenticatedRequest, job: Job, form: CorrectionForm | None = None
) -> dict[str, Any]:
    diagnosis = job_diagnosis(job, timezone.now())
    initial = {}
    experience = None
    quotes = None
    if verdict := diagnosis.verdict:
        initial = {"verdict": verdict.verdict}
        experience = experience_of(verdict, user=request.user, at=timezone.now())
        quotes = quote_evidence(job, verdict)
    return {
        "job": job,
        "diagnosis": diagnosis,
        "quotes": quotes,
        "experience": experience,
        "may_correct_verdict": may_correct_verdict(request.user, job.experiment_id),
        "correction": form or CorrectionForm(initial=initial),
    }


@require_safe
@of_job
def verdict(request: AuthenticatedRequest, job: Job) -> HttpResponse:
    """Show the verdict; the fragment that waits for the analysis loads the log with the result."""
    context = _verdict_context(request, job)
    if not request.htmx:
        return render(request, "diagnosis/verdict.html", context)
    if not context["diagnosis"].is_waiting:
        context["log"] = log_view(job)
    return render(request, "diagnosis/_verdict_part.html", context)


@require_POST
@of_job
def correct_verdict(request: AuthenticatedRequest, job: Job) -> HttpResponse:
    form = CorrectionForm(request.POST)
    if form.is_valid():
        correction = {**form.cleaned_data, "verdict": VerdictKind(form.cleaned_data["verdict"])}
        with show_errors(request, form):
            override_verdict(job=job, by=request.user, at=timezone.now(), **correction)
            messages.success(request, "Verdict overridden.")
            return redirect(job)
    return render(
        request, "diagnosis/verdict.html", _verdict_context(request, job, form), status=400
    )


@require_POST
@of_job
def harvest_again(request: AuthenticatedRequest, job: Job) -> HttpResponse:
    with show_errors(request):
        harvest.reanalyse_log(job=job, by=request.user, at=timezone.now())
        messages.success(request, "Log analysis started.")
    return redirect(job)


@require_safe
def failed_jobs(request: AuthenticatedRequest) -> HttpResponse:
    """List the jobs behind a number on the failures page, newest end first."""
    rows = Verdict.objects.visible_to(request.user).select_related("job__cluster", "experiment")
    chosen = FailedJobs(request.GET, rows)
    page = newest_first(chosen.qs, by="ended_at", query=request.GET)
    asked = chosen.form.cleaned_data if chosen.is_valid() else {}
    context = {
        "filter": chosen,
        "page": page,
        "at": timezone.now(),
        "unlisted": unlisted_months(since=asked.get("start"), until=asked.get("end")),
    }
    return render(request, "diagnosis/failed_jobs.html", context)
