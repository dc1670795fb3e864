"""Pages and partials: a job's verdict and log, and the failed jobs behind each number."""

from typing import Any

from django.contrib import messages
from django.db.models import F
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from apps.accounts.web.http_request import AuthenticatedRequest
from apps.core.domain.pagination import in_order
from apps.core.web.errors import show_errors
from apps.core.web.sorting import field_order, read_sort
from apps.diagnosis.domain.reading.log_windows import log_view
from apps.diagnosis.domain.verdicts import harvest
from apps.diagnosis.domain.verdicts.experience import experience_of
from apps.diagnosis.domain.verdicts.job_diagnosis import job_diagnosis
from apps.diagnosis.domain.verdicts.override import override_verdict
from apps.diagnosis.domain.verdicts.quotes import quote_evidence
from apps.diagnosis.enums import VerdictKind
from apps.diagnosis.filters import FailedJobs
from apps.diagnosis.models import Verdict
from apps.diagnosis.permissions import may_correct_verdict
from apps.diagnosis.web.filter_chips import chips_of
from apps.diagnosis.web.forms import CorrectionForm
from apps.diagnosis.wording import summary_of
from apps.jobs.domain.records.calendar_months import unlisted_months
from apps.jobs.domain.records.jobs import MOST_SORTED
from apps.jobs.models import Job
from apps.jobs.web.one_job import of_job
from apps.statusboard.domain.board.names import service_names

#: The columns by which failed jobs can be sorted, with their fields.
FAILED_ORDERS = {"finished": "ended_at", "wall": "wall_seconds", "core": "core_seconds"}

#: Failed jobs are counted up to this limit.
MOST_COUNTED = 1000


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
    """List the jobs behind a number on the failures page, newest end first unless sorted."""
    chosen = FailedJobs(request.GET, Verdict.objects.visible_to(request.user), request=request)
    sort = read_sort(request, FAILED_ORDERS, default="-finished")
    column = sort.removeprefix("-")
    rows = chosen.qs
    if column != "finished":
        # No index has this order: only the newest jobs are sorted.
        newest = rows.order_by("-ended_at", "-pk").values("pk")[:MOST_SORTED]
        rows = Verdict.objects.filter(pk__in=newest)
    rows = rows.select_related("job__cluster", "experiment", "retried_on").annotate(
        wall_seconds=F("job__wall_seconds"),
        core_seconds=F("job__wall_seconds") * F("job__cpus"),
    )
    page = in_order(rows, by=field_order(sort, FAILED_ORDERS), query=request.GET)
    values = chosen.form.cleaned_data if chosen.is_valid() else {}
    jobs = chosen.qs.order_by()[: MOST_COUNTED + 1].count()
    names = service_names(verdict.service for verdict in page.rows)
    summaries = {}
    for verdict in page.rows:
        summaries[verdict.pk] = summary_of(verdict, names.get(verdict.service, ""))
    context = {
        "filter": chosen,
        "service_names": names,
        "summaries": summaries,
        "jobs": min(jobs, MOST_COUNTED),
        "has_more_jobs": jobs > MOST_COUNTED,
        "chips": chips_of(chosen, request.GET, timezone.now()),
        "page": page,
        "sort": sort,
        "most_sorted": None if column == "finished" else MOST_SORTED,
        "at": timezone.now(),
        "unlisted": unlisted_months(since=values.get("start"), until=values.get("end")),
    }
    return render(request, "diagnosis/failed_jobs.html", context)
