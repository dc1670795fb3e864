"""Submissions of a request: card, choice of a cluster, retries, scripts and bundle."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from django import forms
from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from apps.accounts.web.http_request import AuthenticatedRequest
from apps.core.domain.quantities import count_noun
from apps.core.errors import InvalidFields
from apps.core.web.errors import show_errors
from apps.core.web.turns import one_at_a_time
from apps.production.domain.holds import holds_over
from apps.production.domain.outlook import read_outlook
from apps.production.domain.outputs.acceptance import withdraw_acceptance
from apps.production.enums import RequestState
from apps.production.models import Request, Stage
from apps.production.web.lookup import request_or_404
from apps.submission.domain.arrays import assignment, ignored_advice
from apps.submission.domain.arrays.files import stages_with_files
from apps.submission.domain.arrays.keepup import files_note
from apps.submission.domain.arrays.limits import LIMITABLE, set_limit
from apps.submission.domain.arrays.request_bundle import write_bundle
from apps.submission.domain.arrays.shortfalls import (
    Shortfall,
    accept_stage,
    count_other_completed,
    shortfalls_of,
)
from apps.submission.domain.arrays.submissions import (
    ASSIGNABLE,
    SENDABLE,
    StageSubmissions,
    assignment_of,
    check_may_submit,
    may_submit,
    measure,
    stage_submissions_of,
)
from apps.submission.domain.arrays.trials import results_of
from apps.submission.domain.dispatch.held import release_obstacle, request_release
from apps.submission.domain.dispatch.recall import jobs_in_flight
from apps.submission.domain.dispatch.start import automatic_start_of
from apps.submission.domain.retries.by_stage import count_left_to_rules, retry_failed
from apps.submission.domain.scouts.pages import shown_scouts
from apps.submission.models import Assignment, Submission
from apps.submission.web.forms import (
    AcceptForm,
    AssignForm,
    CancelForm,
    IgnoreAdviceForm,
    LimitForm,
    ReleaseForm,
    RetryForm,
)


@require_safe
def submissions(request: AuthenticatedRequest, key: str) -> HttpResponse:
    """Return the card alone to htmx, else a page with the forms."""
    return _page(request, request_or_404(request.user, key))


@require_POST
def assign(request: AuthenticatedRequest, key: str) -> HttpResponse:
    message = "Jobs of {request} will be submitted to {cluster}."
    return _act(request, key, message, assignment.assign_request, AssignForm(request.POST))


@require_POST
def retry(request: AuthenticatedRequest, key: str) -> HttpResponse:
    """Retry the failed jobs of a stage, and report how many are left to recovery rules."""
    production_request = _for_operator(request, key)
    form = RetryForm(request.POST)
    if not form.is_valid():
        return _page(request, production_request, form)
    with show_errors(request):
        retries = retry_failed(
            request=production_request, by=request.user, at=timezone.now(), **form.cleaned_data
        )
        message = f"{count_noun(retries.jobs, 'failed job')} will be retried."
        if retries.left_to_rules:
            message += f" {retries.left_to_rules:,} more are left to recovery rules."
        messages.success(request, message)
    return redirect("submission:request", key=production_request.key)


@require_POST
def accept(request: AuthenticatedRequest, key: str) -> HttpResponse:
    message = "The request continues without these jobs."
    return _act(request, key, message, accept_stage, AcceptForm(request.POST))


@require_POST
def wait_again(request: AuthenticatedRequest, key: str) -> HttpResponse:
    message = "The stage waits for its missing jobs again."
    return _act(request, key, message, withdraw_acceptance, AcceptForm(request.POST))


@require_POST
def limit(request: AuthenticatedRequest, key: str) -> HttpResponse:
    message = "Job limit changed. It takes effect with the next submission."
    return _act(request, key, message, set_limit, LimitForm(request.POST))


@require_POST
def ignore_advice(request: AuthenticatedRequest, key: str) -> HttpResponse:
    message = "Jobs of {request} are submitted for {hours} h, whatever the advice is."
    return _act(request, key, message, ignored_advice.ignore_advice, IgnoreAdviceForm(request.POST))


@require_POST
def follow_advice(request: AuthenticatedRequest, key: str) -> HttpResponse:
    message = "{request} follows the advice again."
    return _act(request, key, message, ignored_advice.follow_advice)


@require_http_methods(["GET", "HEAD", "POST"])
def cancel(request: AuthenticatedRequest, key: str) -> HttpResponse:
    """Ask for confirmation, then cancel the submitted jobs."""
    form = CancelForm(request.POST if request.method == "POST" else None)
    if form.is_valid():
        message = "Submitted jobs of {request} will be cancelled."
        return _act(request, key, message, assignment.cancel_sent, form)
    production_request = _for_operator(request, key)
    context = {
        "object": production_request,
        "form": form,
        "flight": jobs_in_flight(production_request),
    }
    return render(request, "submission/cancel.html", context, status=400 if form.is_bound else 200)


@require_POST
def again(request: AuthenticatedRequest, key: str, number: int) -> HttpResponse:
    submission = _submission(_for_operator(request, key), number)
    with show_errors(request):
        assignment.send_refused_again(submission=submission, by=request.user, at=timezone.now())
        messages.success(request, f"Array {submission.number} of {key} will be submitted again.")
    return redirect("submission:request", key=key)


@require_http_methods(["GET", "HEAD", "POST"])
def release(request: AuthenticatedRequest, key: str, number: int) -> HttpResponse:
    """Ask for confirmation, then request the release of held jobs of an array."""
    submission = _submission(_for_operator(request, key), number)
    form = ReleaseForm(request.POST if request.method == "POST" else None)
    if form.is_valid():
        with show_errors(request):
            request_release(
                submission=submission, by=request.user, at=timezone.now(), **form.cleaned_data
            )
            messages.success(
                request,
                f"The held jobs of array {submission.number} of {submission.request} will be "
                "released. The queue shows it once it is read again.",
            )
        return redirect(f"{reverse('jobs:list')}?tab=held")
    context = {
        "object": submission.request,
        "submission": submission,
        "obstacle": release_obstacle(submission),
        "form": form,
    }
    return render(request, "submission/release.html", context, status=400 if form.is_bound else 200)


@require_safe
def script(request: AuthenticatedRequest, key: str, number: int) -> HttpResponse:
    """Return the exact script that was submitted."""
    submission = _submission(request_or_404(request.user, key), number)
    return HttpResponse(submission.script, content_type="text/plain; charset=utf-8")


@require_safe
@one_at_a_time
def bundle(request: AuthenticatedRequest, key: str) -> HttpResponse:
    """Return the scripts as a tar, to be submitted by hand."""
    production_request = _for_operator(request, key)
    try:
        content = write_bundle(request=production_request, at=timezone.now())
    except InvalidFields as error:
        messages.error(request, f"Bundle not available. {error}")
        return redirect("submission:request", key=key)
    headers = {"Content-Disposition": f'attachment; filename="{production_request.key}.tar"'}
    return HttpResponse(content, content_type="application/x-tar", headers=headers)


def _act(
    request: AuthenticatedRequest,
    key: str,
    message: str,
    act: Callable[..., Any],
    form: forms.Form | None = None,
) -> HttpResponse:
    """Call a domain function with the values of a form, and report its success.

    An invalid form is shown again in its section.
    """
    production_request = _for_operator(request, key)
    values: dict[str, Any] = {}
    if form is not None:
        if not form.is_valid():
            return _page(request, production_request, form)
        values = form.cleaned_data
    with show_errors(request):
        act(request=production_request, by=request.user, at=timezone.now(), **values)
        messages.success(request, message.format(request=production_request, **values))
    return redirect("submission:request", key=production_request.key)


def _page(
    request: AuthenticatedRequest, production_request: Request, invalid: forms.Form | None = None
) -> HttpResponse:
    """Return the card alone to htmx, else the page with its forms.

    An `invalid` form takes the place of the empty one.
    """
    is_operator = may_submit(request.user, production_request)
    assignment = assignment_of(production_request)
    stage_rows = _stage_rows(production_request)
    at = timezone.now()
    against = ""  # also for requests in states that submit no jobs
    if production_request.state in ignored_advice.STATES:
        against = read_outlook(at).against(
            production_request, production_request.stages.prefetch_related("services")
        )
    context: dict[str, Any] = {
        "object": production_request,
        "assignment": assignment,
        "files": files_note(assignment),
        "stage_rows": stage_rows,
        "any_sent": any(stage_row.rows for stage_row in stage_rows),
        "to_retry": sum(stage_row.to_retry for stage_row in stage_rows),
        "may_submit": is_operator,
        "may_retry": is_operator and production_request.state in SENDABLE,
        "automatic_start": automatic_start_of(production_request, at),
        "flight": jobs_in_flight(production_request),
        "results": results_of(production_request),
        "against": against,
        "scouts": shown_scouts(production_request),
        "ignores_advice": ignored_advice.ignores_advice(production_request, at),
    }
    if request.htmx:
        return render(request, "submission/_card.html", context)

    context["is_whole"] = True
    context["follows_files"] = bool(stages_with_files(production_request))
    context["holds"] = holds_over(production_request)
    if is_operator:
        context |= _request_forms(
            production_request, assignment, invalid, is_advised_against=bool(against)
        )
        if production_request.state in SENDABLE:
            context["retry_forms"] = _retry_forms(production_request, stage_rows, invalid)
        if production_request.state == RequestState.RUNNING:
            context["accept_forms"] = _accept_forms(production_request, at, invalid)
    return render(request, "submission/request.html", context, status=400 if invalid else 200)


def _request_forms(
    production_request: Request,
    assignment: Assignment | None,
    invalid: forms.Form | None,
    *,
    is_advised_against: bool,
) -> dict[str, forms.Form]:
    """Return the forms of a request as a whole, by name, that its state allows."""
    request_forms: dict[str, forms.Form] = {}
    most_in_flight = assignment.most_in_flight if assignment else None
    if production_request.state in ASSIGNABLE:
        initial = {"version": production_request.version, "most_in_flight": most_in_flight}
        assign_form = AssignForm(initial=initial)
        assign_form.offer_starts_from(production_request.state)
        request_forms["assign_form"] = assign_form
    if is_advised_against:
        request_forms["ignore_form"] = IgnoreAdviceForm(auto_id="ignore_%s")
    if assignment and production_request.state in LIMITABLE:
        initial = {"most_in_flight": most_in_flight, "was": most_in_flight or 0}
        request_forms["limit_form"] = LimitForm(initial=initial, auto_id="limit_%s")

    for name, form in request_forms.items():
        if isinstance(invalid, type(form)):
            request_forms[name] = invalid
    return request_forms


def _stage_rows(production_request: Request) -> list[StageSubmissions]:
    stage_rows = stage_submissions_of(production_request)
    measure(stage_rows)
    if any(stage_row.rows for stage_row in stage_rows):
        count_other_completed(production_request, stage_rows)
    return stage_rows


class RetryFormRow(NamedTuple):
    """A stage with failed jobs, how many of them are left to recovery rules, and its form."""

    stage_row: StageSubmissions
    left_to_rules: int
    form: forms.Form


def _retry_forms(
    production_request: Request, stage_rows: Sequence[StageSubmissions], invalid: forms.Form | None
) -> list[RetryFormRow]:
    """Return the forms of the stages with failed jobs."""
    to_retry = [stage_row for stage_row in stage_rows if stage_row.to_retry > 0]
    left_to_rules = count_left_to_rules(production_request) if to_retry else {}
    retry_forms = []
    for stage_row in to_retry:
        form = _stage_form(stage_row.stage, RetryForm, "retry", invalid)
        jobs_left = left_to_rules.get(stage_row.stage.position, 0)
        if not jobs_left:
            del form.fields["with_planned"]
        retry_forms.append(RetryFormRow(stage_row, jobs_left, form))
    return retry_forms


def _accept_forms(
    production_request: Request, at: datetime, invalid: forms.Form | None
) -> list[tuple[Shortfall, forms.Form]]:
    """Return the stages that can be accepted as is, or are accepted, each with its form."""
    accept_forms = []
    for shortfall in shortfalls_of(production_request, at):
        if shortfall.acceptance or (shortfall.missing and not shortfall.obstacle):
            form = _stage_form(shortfall.stage, AcceptForm, "accept", invalid)
            accept_forms.append((shortfall, form))
    return accept_forms


def _stage_form(
    stage: Stage, form_class: type[forms.Form], prefix: str, invalid: forms.Form | None
) -> forms.Form:
    """Return the form of a stage: the invalid one if it is of this stage, else an empty one."""
    position = stage.position
    auto_id = f"{prefix}{position}_%s"
    if isinstance(invalid, form_class) and invalid.data.get("position") == str(position):
        invalid.auto_id = auto_id
        return invalid
    return form_class(initial={"position": position}, auto_id=auto_id)


def _for_operator(request: AuthenticatedRequest, key: str) -> Request:
    production_request = request_or_404(request.user, key)
    check_may_submit(request.user, production_request)
    return production_request


def _submission(production_request: Request, number: int) -> Submission:
    return get_object_or_404(
        production_request.submissions.select_related("request__experiment", "cluster"),
        number=number,
    )
