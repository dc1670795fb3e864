"""Pages of the archive: list, job, comparison, and raw contents."""

from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpResponse, HttpResponseBase, QueryDict
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from apps.accounts.web.http_request import AuthenticatedRequest
from apps.archive.domain.bundle import MOST_JOBS, safe_name
from apps.archive.domain.differences import difference, last_success
from apps.archive.domain.retention import may_pin, pin_job, unpin_job
from apps.archive.domain.search.search import TooWide, hits_in
from apps.archive.domain.search.word_index import jobs_waiting
from apps.archive.domain.store.conflicts import (
    captures_of,
    choice_events,
    choose_capture,
    undo_capture_choice,
    unstored_captures,
)
from apps.archive.domain.store.contents import (
    CLOCK_TOLERANCE,
    DamagedContent,
    archived_jobs_for_list,
    read_blob,
    shown_environment,
    shown_script,
)
from apps.archive.filters import LONGEST_LINE, MOST_SORTED, ArchivedJobs
from apps.archive.models import ArchivedJob, Blob, Pin
from apps.archive.permissions import may_choose_capture, sees_environment
from apps.archive.web.downloads import (
    chosen_jobs,
    is_filtered,
    read_filters,
    selected_jobs,
    tar_response,
)
from apps.archive.web.forms import CaptureChoiceForm, OtherJobForm, PinForm
from apps.clusters.schedulers.base import JobState
from apps.core.web.errors import show_errors
from apps.core.web.query import number_in
from apps.core.web.sorting import field_order, read_sort
from apps.core.web.turns import one_at_a_time
from apps.jobs.filters import with_probe_choice
from apps.jobs.models import Job

#: Jobs that are not indexed yet are counted no further.
COUNTED = 100_000
#: Captures of a job that a page lists.
MOST_CAPTURES = 50
#: The columns by which archived jobs can be sorted, with their fields.
JOB_ORDERS = {
    "job": "job_id",
    "state": "state",
    "submitted": "submitted_at",
    "user": "user",
    "request": "request_key",
    "stage": "stage",
    "script": "script_bytes",
}
NEWEST_FIRST = "-submitted"


def _job(request: AuthenticatedRequest, pk: int) -> ArchivedJob:
    return get_object_or_404(archived_jobs_for_list(request.user).defer(None), pk=pk)


@require_safe
def jobs(request: AuthenticatedRequest) -> HttpResponse:
    chosen = ArchivedJobs(
        with_probe_choice(request.GET, ArchivedJobs), archived_jobs_for_list(request.user)
    )
    sort = read_sort(request, JOB_ORDERS, default=NEWEST_FIRST)
    column = sort.removeprefix("-")
    context: dict[str, Any] = {
        "filter": chosen,
        "filtered": is_filtered(request.GET),
        "counted": COUNTED,
        "sort": sort,
        "can_sort": chosen.can_sort,
        "most_sorted": None if column == "submitted" else MOST_SORTED,
    }
    context["more_open"] = any(
        request.GET.get(field.name) for field in chosen.form if field.name not in chosen.FIRST
    )
    context |= {"tar_limit": MOST_JOBS, "tar_query": f"?{read_filters(request.GET).urlencode()}"}
    context["query_fields"] = list(read_filters(request.GET).items())
    try:
        if chosen.can_sort:
            page = chosen.sorted_page(request.GET, by=field_order(sort, JOB_ORDERS))
        else:
            page = chosen.page(request.GET)
        hits = hits_in(page.rows, chosen.search)
        context |= {"page": page, "rows": [(row, hits.get(row.script_id, [])) for row in page.rows]}
    except TooWide as error:
        context["too_wide"] = str(error)
    if chosen.search.terms:
        context["not_indexed"] = jobs_waiting(at_most=COUNTED)
    return render(request, "archive/jobs.html", context)


@require_safe
def job(request: AuthenticatedRequest, pk: int) -> HttpResponse:
    archived = _job(request, pk)
    sees = sees_environment(request.user, archived)
    context: dict[str, Any] = {
        "archived": archived,
        "script": shown_script(archived),
        "sees_environment": sees,
        "environment": shown_environment(archived) if sees else None,
        "success": last_success(archived, user=request.user),
        "form": _compare_form(archived),
        "pin": Pin.objects.filter(job=archived).first(),
        "may_pin": may_pin(request.user, archived),
        "pin_form": PinForm(),
    }
    if archived.conflict:
        context |= _captures(request, archived)
    return render(request, "archive/job.html", context)


def _captures(request: AuthenticatedRequest, archived: ArchivedJob) -> dict[str, Any]:
    """Return the captures of a job that the user may see, and the form to choose one."""
    captures = captures_of(archived)
    ids = ArchivedJob.objects.visible_to(request.user).filter(
        pk__in=[capture.pk for capture in captures]
    )
    visible = set(ids.values_list("pk", flat=True))
    shown = [capture for capture in captures if capture.pk in visible]
    may_choose = all(may_choose_capture(request.user, capture) for capture in captures)
    choice_form = None
    if may_choose:
        version = {"conflict_version": archived.conflict_version}
        choice_form = CaptureChoiceForm(initial=version, auto_id="capture_%s")
    return {
        "captures": shown[:MOST_CAPTURES],
        "unstored_captures": unstored_captures(shown)[:MOST_CAPTURES],
        "not_shown": len(captures) - len(shown[:MOST_CAPTURES]),
        "choices": choice_events(shown)[:MOST_CAPTURES],
        "chosen": next((capture for capture in shown if capture.chosen_at), None),
        "choice_form": choice_form,
    }


@require_safe
def line(request: AuthenticatedRequest, pk: int, number: int) -> HttpResponse:
    """Redirect from a line of a script to the search for scripts with that line."""
    script = shown_script(_job(request, pk))
    if script is None or not 1 <= number <= len(script.lines):
        raise Http404("no such line")
    text = script.lines[number - 1].strip()
    if len(text) > LONGEST_LINE:
        messages.error(request, "This line is too long to search for.")
        return redirect("archive:job", pk=pk)
    query = QueryDict(mutable=True)
    query["line"] = text
    return redirect(f"{reverse('archive:jobs')}?{query.urlencode()}")


@require_safe
@one_at_a_time
def diff(request: AuthenticatedRequest, pk: int) -> HttpResponse:
    """Compare with the job of `?other=` or of `?cluster=…&job=…`, or else with the last success.

    The page leads back to the job record of `?of=`, if it is one of the archived job.
    """
    archived = _job(request, pk)
    if "job" in request.GET:
        form = OtherJobForm(request.GET)
    else:
        form = _compare_form(archived)
    context: dict[str, Any] = {
        "archived": archived,
        "form": form,
        "exact": request.GET.get("exact") == "1",
        "job": _job_record(request, archived),
    }
    if context["job"] and context["job"].state != JobState.COMPLETED:
        context["completed_tasks"] = _tasks_of(request, archived, JobState.COMPLETED)
    other = None
    if request.GET.get("other"):
        number = number_in(request.GET, "other")
        other = _job(request, number) if number is not None else None
    elif form.is_bound:
        other = form.find(request.user)
    elif success := last_success(archived, user=request.user):
        other, context["kind"] = success

    if other:
        comparison = difference(other, archived, user=request.user, exact=context["exact"])
        whole = request.GET.get("all") == "1"
        context |= {"difference": comparison, "all": whole, "other": other}
        context["rows"] = comparison.rows if whole else comparison.folded()
    return render(request, "archive/diff.html", context)


def _job_record(request: AuthenticatedRequest, archived: ArchivedJob) -> Job | None:
    """Return the job record of `?of=` with this script; None if it has another one."""
    number = number_in(request.GET, "of")
    if number is None:
        return None
    return _records_of(request, archived).filter(pk=number).first()


def _records_of(request: AuthenticatedRequest, archived: ArchivedJob) -> QuerySet[Job]:
    """Return the job records of an archived job: one, or all tasks of its array."""
    jobs = Job.objects.visible_to(request.user)
    return jobs.filter(cluster=archived.cluster_id, spool_id=archived.job_id)


def _tasks_of(request: AuthenticatedRequest, archived: ArchivedJob, state: JobState) -> int:
    """Return how many tasks of the array of an archived job are in a state now."""
    first = archived.submitted_at - CLOCK_TOLERANCE
    last = archived.submitted_at + CLOCK_TOLERANCE
    tasks = _records_of(request, archived).filter(state=state, submitted_at__range=(first, last))
    return tasks.values("job_id").distinct().count()


def _compare_form(archived: ArchivedJob) -> OtherJobForm:
    return OtherJobForm(initial={"cluster": archived.cluster.name})


@require_safe
def compare(request: AuthenticatedRequest) -> HttpResponse:
    """Compare the two jobs that were selected in the list, the older on the left."""
    chosen = list(selected_jobs(request.user, request.GET)[:3])
    if len(chosen) != 2:
        messages.error(request, "Select two jobs to compare.")
        return redirect(f"{reverse('archive:jobs')}?{read_filters(request.GET).urlencode()}")
    older, newer = sorted(chosen, key=lambda job: (job.submitted_at, job.pk))
    return redirect(f"{reverse('archive:diff', args=[newer.pk])}?other={older.pk}")


@require_safe
@one_at_a_time
def tar(request: AuthenticatedRequest) -> HttpResponseBase:
    """Send the jobs that were selected; without any, those that the filters find."""
    with show_errors(request):
        return tar_response(request.user, chosen_jobs(request.user, request.GET))
    return redirect(f"{reverse('archive:jobs')}?{read_filters(request.GET).urlencode()}")


@require_POST
def pin(request: AuthenticatedRequest, pk: int) -> HttpResponse:
    job = _job(request, pk)
    form = PinForm(request.POST)
    if form.is_valid():
        pin_job(job=job, by=request.user, reason=form.cleaned_data["reason"], at=timezone.now())
        messages.success(request, "Job pinned.")
    else:
        messages.error(request, "Enter a reason of up to 200 characters.")
    return redirect("archive:job", pk=pk)


@require_POST
def unpin(request: AuthenticatedRequest, pk: int) -> HttpResponse:
    unpin_job(job=_job(request, pk), by=request.user, at=timezone.now())
    messages.success(request, "Job unpinned. Retention rules apply again.")
    return redirect("archive:job", pk=pk)


@require_POST
def use_capture(request: AuthenticatedRequest, pk: int) -> HttpResponse:
    return _change_choice(request, pk, choose_capture, "This capture is in use.")


@require_POST
def undo_choice(request: AuthenticatedRequest, pk: int) -> HttpResponse:
    return _change_choice(request, pk, undo_capture_choice, "No capture of this job is in use.")


def _change_choice(
    request: AuthenticatedRequest, pk: int, change: Callable[..., ArchivedJob], done: str
) -> HttpResponse:
    """Choose a capture or undo a choice, and go back to the job."""
    job = _job(request, pk)
    form = CaptureChoiceForm(request.POST)
    if not may_choose_capture(request.user, job):
        raise PermissionDenied
    if not form.is_valid():
        messages.error(request, "Enter a reason of up to 200 characters.")
        return redirect("archive:job", pk=pk)
    with show_errors(request):
        change(job=job, by=request.user, at=timezone.now(), **form.cleaned_data)
        messages.success(request, done)
    return redirect("archive:job", pk=pk)


@require_safe
def content(request: AuthenticatedRequest, pk: int, kind: str) -> HttpResponse:
    """Send a content as stored.

    A description also holds the environment, so both need the same permission.
    """
    archived = _job(request, pk)
    if kind != "script" and not sees_environment(request.user, archived):
        raise PermissionDenied
    blob: Blob | None = getattr(archived, kind)
    if blob is None:
        raise Http404("the scheduler keeps none")
    return _download(blob, f"job.{archived.job_id}_{kind}")


def _download(blob: Blob, name: str) -> HttpResponse:
    """Answer with bytes that no browser is to take for a page of the portal."""
    try:
        content = read_blob(blob)
    except DamagedContent as error:
        text = f"This {blob.kind} is damaged in the archive: it {error}.\n"
        return HttpResponse(text, content_type="text/plain; charset=utf-8", status=410)
    response = HttpResponse(content, content_type="text/plain; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{safe_name(name)}"'
    response["X-Content-Type-Options"] = "nosniff"
    return response
