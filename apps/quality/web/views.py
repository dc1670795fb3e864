"""Data quality of a request: card, results by stage, waivers; and the list of requests."""

from collections.abc import Iterable, Sequence
from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from apps.accounts.web.http_request import AuthenticatedRequest
from apps.core.web.errors import show_errors
from apps.core.web.query import number_in
from apps.production.enums import RequestState
from apps.production.models import Request
from apps.production.web.lookup import request_or_404
from apps.quality.domain import runs
from apps.quality.domain.data_quality import (
    data_quality_of,
    results_of,
    runs_of,
    thresholds_changed,
    waiting_for_quality,
)
from apps.quality.enums import Outcome
from apps.quality.models import QualityResult, QualityRun
from apps.quality.permissions import may_run, may_waive
from apps.quality.web.forms import WaiveForm, WithdrawForm

#: Requests per page of the list.
PAGE = 50


@require_safe
def waiting(request: AuthenticatedRequest) -> HttpResponse:
    """List the requests in data quality. `?after=50` skips the first 50."""
    after = number_in(request.GET, "after") or 0
    requests = waiting_for_quality(request.user)
    context = {
        "after": after,
        "next_after": after + PAGE,
        "total": requests.count(),
        "rows": requests[after : after + PAGE],
    }
    return render(request, "quality/waiting.html", context)


@require_safe
def quality(request: AuthenticatedRequest, key: str) -> HttpResponse:
    """Render only the card for htmx, else all results. `?run=2` shows an older run."""
    return _page(request, request_or_404(request.user, key))


@require_POST
def run_again(request: AuthenticatedRequest, key: str) -> HttpResponse:
    production_request = request_or_404(request.user, key)
    with show_errors(request):
        runs.ask_for_run(
            request=production_request,
            by=request.user,
            at=timezone.now(),
            reason=request.POST.get("reason", ""),
        )
        messages.success(request, "The checks are running again. This takes some seconds.")
    return redirect("quality:request", key=key)


@require_POST
def waive(request: AuthenticatedRequest, key: str) -> HttpResponse:
    """Waive the ticked results for one reason, and close the request if none is left open."""
    production_request = request_or_404(request.user, key)
    runs.check_may_waive(production_request, request.user)
    form = WaiveForm(request.POST)
    if form.is_valid():
        cleaned = form.cleaned_data
        at = timezone.now()
        with show_errors(request, form):
            waivers = runs.waive_results(
                request=production_request,
                results=cleaned["result"],
                by=request.user,
                at=at,
                reason=cleaned["reason"],
                in_part=cleaned["in_part"],
            )
            closed = runs.close_if_passed(request=production_request, at=at)
            messages.success(request, _waived_message(len(waivers), closed))
    if form.errors:
        return _page(request, production_request, form=form)
    return redirect("quality:request", key=key)


def _waived_message(number: int, closed: Request | None) -> str:
    message = "Result waived."
    if number > 1:
        message = f"{number} results waived."
    if closed is None:
        return message
    return f"{message} {closed} is now “{closed.get_state_display()}”."


@require_POST
def withdraw(request: AuthenticatedRequest, key: str) -> HttpResponse:
    """Withdraw a waiver. Problems are shown in the form."""
    production_request = request_or_404(request.user, key)
    runs.check_may_waive(production_request, request.user)
    form = WithdrawForm(request.POST)
    if form.is_valid():
        with show_errors(request, form):
            runs.withdraw_waiver(
                request=production_request, by=request.user, at=timezone.now(), **form.cleaned_data
            )
            messages.success(request, "Waiver withdrawn.")
    if form.errors:
        return _page(request, production_request, form=form)
    return redirect("quality:request", key=key)


def _page(
    request: AuthenticatedRequest, production_request: Request, form: Any = None
) -> HttpResponse:
    quality = data_quality_of(production_request)
    waives = (
        may_waive(request.user, production_request)
        and production_request.state == RequestState.DATA_QUALITY
    )
    context: dict[str, Any] = {
        "object": production_request,
        "quality": quality,
        "shown": quality.shown,
        "may_waive": waives,
        "may_run": may_run(request.user, production_request)
        and production_request.state == RequestState.DATA_QUALITY,
    }
    if request.htmx:
        return render(request, "quality/_card.html", context)

    results: Sequence[QualityResult] = quality.results
    if "run" in request.GET:
        evaluated = QualityRun.objects.filter(
            request=production_request, evaluated_at__isnull=False
        )
        context["shown"] = get_object_or_404(evaluated, number=number_in(request.GET, "run"))
        results = results_of(context["shown"], quality.waivers)
        context["may_waive"] = waives and context["shown"] == quality.run
    context |= {
        "runs": runs_of(production_request),
        "thresholds_changed": bool(context["shown"])
        and thresholds_changed(context["shown"], production_request),
        **_by_outcome(results),
        **_forms(request, results, context["may_waive"], form),
    }
    return render(request, "quality/request.html", context, status=200 if form is None else 400)


def _by_outcome(results: Iterable[QualityResult]) -> dict[str, list[QualityResult]]:
    """Return the results that block the request, those to review, and those that passed."""
    blocking = []
    to_review = []
    passed = []
    for result in results:
        if result.is_open:
            blocking.append(result)
        elif result.outcome == Outcome.PASSED:
            passed.append(result)
        else:
            to_review.append(result)
    return {"blocking": blocking, "to_review": to_review, "passed": passed}


def _forms(
    request: AuthenticatedRequest, results: Iterable[QualityResult], waives: bool, form: Any
) -> dict[str, Any]:
    """Return the forms: to waive the open results, ticked by `?waive=`, or to withdraw a waiver.

    The latter is opened by `?withdraw=`.
    """
    if not waives:
        return {}
    waive_form = form if isinstance(form, WaiveForm) else WaiveForm()
    ticked = request.GET.getlist("waive")
    if waive_form.is_bound:
        ticked = request.POST.getlist("result")
    forms: dict[str, Any] = {"waive_form": waive_form, "ticked": ticked}

    withdraw_form = form if isinstance(form, WithdrawForm) else None
    waiver = request.GET.get("withdraw", "")
    if withdraw_form is not None:
        waiver = withdraw_form.data.get("waiver", "")
    for result in results:
        if result.waiver and str(result.waiver.pk) == waiver:
            forms["chosen"] = result
            forms["withdraw_form"] = withdraw_form or WithdrawForm(initial={"waiver": waiver})
    return forms
