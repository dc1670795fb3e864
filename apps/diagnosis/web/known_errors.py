"""Pages of known errors: list, detail with jobs and history, form with preview, and proposals."""

from typing import Any

from django.contrib import messages
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from apps.accounts.models import User
from apps.accounts.web.http_request import AuthenticatedRequest
from apps.core import charts
from apps.core.domain.expressions.runs import TooCostly
from apps.core.errors import InvalidFields, NotAllowed
from apps.core.web.errors import show_errors
from apps.core.web.sorting import read_sort, sort_rows
from apps.diagnosis.domain.groups.waits import name_of_service
from apps.diagnosis.domain.groups.where_else import find_template_text
from apps.diagnosis.domain.known_errors import figures
from apps.diagnosis.domain.known_errors.changes import (
    check_pattern,
    checked_change,
    checked_known_error,
    decide_change,
    proposed_values,
    submit_change,
    values_of,
)
from apps.diagnosis.domain.known_errors.proposal import id_of, pattern_of, pattern_of_template
from apps.diagnosis.domain.reading.pattern_preview import Preview, preview_pattern
from apps.diagnosis.enums import ADVICE_OF, CATEGORY_OF_CORRECTION, ChangeState, Role, VerdictKind
from apps.diagnosis.filters import KnownErrors
from apps.diagnosis.models import KnownError, KnownErrorChange, KnownErrorOmission
from apps.diagnosis.permissions import may_edit_catalogue, may_propose_known_errors
from apps.diagnosis.web.known_error_form import KnownErrorForm
from apps.jobs.models import Job
from apps.statusboard.domain.board.names import service_names

PAGE_SIZE = 50


def _proposals() -> QuerySet[KnownErrorChange]:
    return KnownErrorChange.objects.filter(state=ChangeState.PROPOSED).order_by("pk")


@require_safe
def known_errors(request: AuthenticatedRequest) -> HttpResponse:
    """List known errors with their jobs of 30 days, those with most jobs first."""
    chosen = KnownErrors(request.GET, KnownError.objects.select_related("experiment", "omission"))
    by_id = figures.figures_of(request.user, at=timezone.now())

    columns = {
        "title": lambda known_error: known_error.title.casefold(),
        "category": lambda known_error: known_error.get_category_display(),
        "service": lambda known_error: known_error.service or None,
        "jobs": lambda known_error: getattr(by_id.get(known_error.pk), "jobs", None),
        "seen": lambda known_error: getattr(by_id.get(known_error.pk), "last", None),
    }
    sort = read_sort(request, columns, default="-jobs")
    listed = sort_rows(chosen.qs.order_by("pk"), columns, sort)
    page = Paginator(listed, PAGE_SIZE).get_page(request.GET.get("page"))
    rows = []
    for known_error in page.object_list:
        jobs = by_id.get(known_error.pk)
        chart = ""
        if jobs:
            chart = charts.spark(
                jobs.daily, sentence=f"30 days, at most {max(jobs.daily)} jobs a day"
            )
        rows.append((known_error, jobs, chart))

    context = {
        "filter": chosen,
        "page": page,
        "rows": rows,
        "service_names": service_names(row.service for row in page.object_list),
        "sort": sort,
        "proposals": _proposals(),
        "omissions": KnownErrorOmission.objects.select_related("known_error").order_by("-last_at"),
        "may_propose": may_propose_known_errors(request.user),
        "may_edit": may_edit_catalogue(request.user),
    }
    return render(request, "diagnosis/known_errors/list.html", context)


@require_safe
def known_error(request: AuthenticatedRequest, pk: str) -> HttpResponse:
    """Show one known error: its text, its jobs of 30 days, proposals and history."""
    entry = get_object_or_404(KnownError.objects.select_related("experiment", "omission"), pk=pk)
    at = timezone.now()
    error_figures = figures.figures_of(request.user, at=at, only=[pk]).get(pk)
    days = figures.days_until(at)
    daily = error_figures.daily if error_figures else [0] * len(days)
    bins = [charts.Bin(f"{day:%d %b}", (jobs,)) for day, jobs in zip(days, daily, strict=True)]
    sentence = f"{sum(daily)} jobs failed by it in 30 days, at most {max(daily)} in one day"
    context = {
        "row": entry,
        "service_name": name_of_service(entry.service),
        "figures": error_figures,
        "chart": charts.bars(
            bins,
            [charts.Series("jobs", "down")],
            sentence=sentence,
            heading="Day",
            ticks=charts.edge_ticks(bins),
        ),
        "history": figures.history_of(pk),
        "omitting_job": _omitting_job(entry, request.user),
        "since": days[0],
        "may_propose": may_propose_known_errors(request.user),
        "may_edit": may_edit_catalogue(request.user),
    }
    return render(request, "diagnosis/known_errors/detail.html", context)


def _omitting_job(known_error: KnownError, user: User) -> Job | None:
    """Return the newest job whose log was searched without this known error.

    None if the user may not see the job.
    """
    if not hasattr(known_error, "omission"):
        return None
    return Job.objects.visible_to(user).filter(pk=known_error.omission.last_job).first()


@require_http_methods(["GET", "HEAD", "POST"])
def new_known_error(request: AuthenticatedRequest) -> HttpResponse:
    """Create a known error, prefilled from a line of a log or a failure group in the query."""
    return _edit(request, None, _initial(request))


@require_http_methods(["GET", "HEAD", "POST"])
def edit_known_error(request: AuthenticatedRequest, pk: str) -> HttpResponse:
    known_error = get_object_or_404(KnownError.objects.select_related("experiment"), pk=pk)
    return _edit(request, known_error, {"base": known_error.version})


def _initial(request: AuthenticatedRequest) -> dict[str, Any]:
    """Return initial values from the query.

    The query may contain `line`, `service` and `verdict`, and `template`: the hash of a line for
    whose template the pattern is.
    """
    query = request.GET
    line = query.get("line", "")[:4000]
    service = query.get("service", "")[:64]
    initial: dict[str, Any] = {"base": 0, "role": Role.CAUSE, "service": service}
    if query.get("verdict") in list(CATEGORY_OF_CORRECTION):
        kind = VerdictKind(query["verdict"])
        initial["category"] = CATEGORY_OF_CORRECTION[kind]
        initial["advice"] = ADVICE_OF[kind]
    template = find_template_text(query.get("template", ""), user=request.user)
    line = line if line.strip() else template
    if line.strip():
        regex = pattern_of_template(template) or pattern_of(line)
        initial |= {"example": line, "regex": regex, "id": id_of(line, service)}
    return initial


def _edit(
    request: AuthenticatedRequest, entry: KnownError | None, initial: dict[str, Any]
) -> HttpResponse:
    """Show the form; on POST, preview the pattern or submit the change.

    A preview needs the pattern alone.
    """
    if not may_propose_known_errors(request.user):
        raise NotAllowed("Only the OPG and liaisons can propose known errors.")
    form = KnownErrorForm(request.POST or None, instance=entry, initial=initial, by=request.user)
    preview = None
    if "preview" in request.POST:
        form.keep_errors_of("regex", "experiment")
        if not form.errors:
            with show_errors(request, form):
                values = form.values()
                check_pattern(values["regex"], values.get("example") or None, by=request.user)
                preview = _preview(request, values)
    elif request.method == "POST" and _is_acceptable(form, request.user):
        with show_errors(request, form):
            return redirect(_submit(request, form))
    may_edit = may_edit_catalogue(request.user)
    context = {"form": form, "row": entry, "preview": preview, "may_edit": may_edit}
    return render(
        request, "diagnosis/known_errors/form.html", context, status=400 if form.errors else 200
    )


def _is_acceptable(form: KnownErrorForm, user: User) -> bool:
    """Report all problems at once: of the fields, of the pattern and of the reason."""
    faulty = set(form.errors)
    reason = form.cleaned_data.get("reason", "")
    try:
        checked_change(form.known_error, form.values(), reason=reason, by=user)
    except InvalidFields as error:
        for name, texts in error.problems.items():
            # A field that is missing here was faulty already.
            if name not in faulty:
                form.add_error(name if name in form.fields else None, texts)
    return form.is_valid()


def _preview(request: AuthenticatedRequest, values: dict[str, Any]) -> Preview:
    return preview_pattern(
        regex=values["regex"], experiment=values["experiment"], user=request.user
    )


def _submit(request: AuthenticatedRequest, form: KnownErrorForm) -> KnownError | KnownErrorChange:
    change = submit_change(
        known_error=form.known_error,
        values=form.values(),
        by=request.user,
        at=timezone.now(),
        reason=form.cleaned_data["reason"],
        base=form.cleaned_data["base"],
    )
    if change.state == ChangeState.PROPOSED:
        messages.success(request, "Change proposed. An approver decides on it.")
        return change
    messages.success(request, f"{change.known_error} saved as version {change.version}.")
    return KnownError.objects.get(pk=change.known_error)


@require_safe
def known_error_change(request: AuthenticatedRequest, pk: int) -> HttpResponse:
    """Show a change: its differences, and for a proposal the matches of its pattern."""
    change = get_object_or_404(KnownErrorChange, pk=pk)
    entry = KnownError.objects.select_related("experiment").filter(pk=change.known_error).first()
    preview = None
    problem = ""
    values = change.values
    is_open = change.state == ChangeState.PROPOSED
    if is_open:
        values = proposed_values(change)
        try:
            checked_known_error(change.known_error, values, by=request.user)
            preview = _preview(request, values)
        except (InvalidFields, TooCostly) as error:
            problem = str(error)
    context = {
        "change": change,
        "row": entry,
        "differences": figures.list_changed_fields(
            values_of(entry) if entry and is_open else {}, values
        ),
        "preview": preview,
        "problem": problem,
        "may_decide": is_open and may_edit_catalogue(request.user),
    }
    return render(request, "diagnosis/known_errors/change.html", context)


@require_POST
def decide_known_error(request: AuthenticatedRequest, pk: int) -> HttpResponse:
    """Approve or reject a proposal."""
    change = get_object_or_404(KnownErrorChange, pk=pk)
    approve = request.POST.get("do") == "approve"
    with show_errors(request):
        reason = request.POST.get("reason", "")[:4000]
        decide_change(
            change=change, approve=approve, by=request.user, at=timezone.now(), reason=reason
        )
        messages.success(
            request, f"Change of {change.known_error} {'approved' if approve else 'rejected'}."
        )
        return redirect("diagnosis:known-errors")
    return redirect(reverse("diagnosis:known-error-change", args=[pk]))
