"""Data quality of a request: card, results by stage, waivers; and the list of requests in data quality."""

from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.forms import Form
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
from apps.quality.domain.overview import runs_of, waiting_for_quality, waivers_of
from apps.quality.domain.standing import rate, standing_of, thresholds_changed
from apps.quality.models import QualityRun
from apps.quality.permissions import may_run, may_waive
from apps.quality.web.forms import WaiveForm, WithdrawForm


@require_safe
def waiting(request: AuthenticatedRequest) -> HttpResponse:
    """List the requests in data quality; `?after=50` skips the first 50."""
    after = number_in(request.GET, "after") or 0
    part = waiting_for_quality(request.user, after=after)
    return render(request, "quality/waiting.html", {"part": part, "after": after})


@require_safe
def quality(request: AuthenticatedRequest, key: str) -> HttpResponse:
    """Return the card alone to htmx, else all results; `?run=2` shows an older run."""
    return _page(request, request_or_404(request.user, key))


@require_POST
def run_again(request: AuthenticatedRequest, key: str) -> HttpResponse:
    wanted = request_or_404(request.user, key)
    with show_errors(request):
        runs.ask_for_run(request=wanted, by=request.user, at=timezone.now(), reason=request.POST.get("reason", ""))
        messages.success(request, "The checks are running again. This takes some seconds.")
    return redirect("quality:request", key=key)


@require_POST
def waive(request: AuthenticatedRequest, key: str) -> HttpResponse:
    return _sign(request, key, WaiveForm(request.POST), runs.waive_result, "Result waived.")


@require_POST
def withdraw(request: AuthenticatedRequest, key: str) -> HttpResponse:
    return _sign(request, key, WithdrawForm(request.POST), runs.withdraw_waiver, "Waiver withdrawn.")


def _sign(request: AuthenticatedRequest, key: str, form: Form, service: Callable[..., Any], said: str) -> HttpResponse:
    """Waive a result or withdraw a waiver; problems are shown in the form."""
    wanted = request_or_404(request.user, key)
    runs.check_may_waive(wanted, request.user)
    if form.is_valid():
        with show_errors(request, form):
            service(request=wanted, by=request.user, at=timezone.now(), **form.cleaned_data)
            messages.success(request, said)
    return _page(request, wanted, form=form) if form.errors else redirect("quality:request", key=key)


def _page(request: AuthenticatedRequest, wanted: Request, form: Any = None) -> HttpResponse:
    standing, status = standing_of(wanted), 200 if form is None else 400
    waives = may_waive(request.user, wanted) and wanted.state == RequestState.DATA_QUALITY
    context: dict[str, Any] = {
        "object": wanted,
        "standing": standing,
        "shown": standing.shown,
        "may_waive": waives,
        "may_run": may_run(request.user, wanted) and wanted.state == RequestState.DATA_QUALITY,
    }
    if request.htmx:
        return render(request, "quality/_card.html", context)
    rated = standing.rated
    if "run" in request.GET:
        judged = QualityRun.objects.filter(request=wanted, judged_at__isnull=False)
        context["shown"] = get_object_or_404(judged, number=number_in(request.GET, "run"))
        rated = tuple(rate(context["shown"]))
        context["may_waive"] = waives and context["shown"] == standing.run
    context |= {
        "rated": rated,
        "runs": runs_of(wanted),
        "waivers": waivers_of(wanted),
        "thresholds_changed": bool(context["shown"]) and thresholds_changed(context["shown"], wanted),
        **_forms(request, rated, context["may_waive"], form),
    }
    return render(request, "quality/request.html", context, status=status)


def _forms(request: AuthenticatedRequest, rated: Any, waives: bool, form: Any) -> dict[str, Any]:
    """Return the open form: to waive a result (`?waive=`) or to withdraw a waiver (`?withdraw=`)."""
    if not waives:
        return {}
    asked = form.data if form is not None else request.GET
    results = {str(one.result.pk): one for one in rated}
    chosen = results.get(asked.get("waive") or asked.get("result", ""))
    if chosen is not None and chosen.is_open:
        form = form or WaiveForm(initial={"result": chosen.result.pk})
        return {"signing": "waive", "form": form, "chosen": chosen}
    number = asked.get("withdraw") or asked.get("waiver", "")
    signed = next((one for one in rated if one.waiver and str(one.waiver.pk) == number), None)
    if signed is not None:
        form = form or WithdrawForm(initial={"waiver": signed.waiver.pk})
        return {"signing": "withdraw", "form": form, "chosen": signed}
    return {}
