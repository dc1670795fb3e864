"""Bring the input datasets of a request to disk. No page asks a catalogue."""

from collections.abc import Callable

from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST

from apps.accounts.web.http_request import AuthenticatedRequest
from apps.core.web.errors import show_errors
from apps.core.web.query import number_in
from apps.datasets.domain.input_datasets import stageable_in
from apps.datasets.domain.staging import (
    DEADLINE,
    ask_now,
    cancel_waiting,
    check_may_stage,
    request_staging,
)
from apps.datasets.domain.staging_options import staging_target
from apps.datasets.models import StagingRequest
from apps.production.models import Request
from apps.production.web.lookup import request_or_404


@require_http_methods(["GET", "HEAD", "POST"])
def stage(request: AuthenticatedRequest, key: str) -> HttpResponse:
    """Ask whether to bring a dataset to disk, then store that it is to be."""
    production_request = request_or_404(request.user, key)
    check_may_stage(request.user, production_request)
    if request.method == "POST":
        dataset = request.POST.get("dataset", "")
        with show_errors(request):
            request_staging(
                request=production_request, dataset=dataset, by=request.user, at=timezone.now()
            )
            messages.success(
                request, f"The catalogue will be asked shortly to bring {dataset} to disk."
            )
        return _back(production_request)

    dataset = request.GET.get("dataset", "")
    if not dataset:
        return _back(production_request)
    catalogue = stageable_in(production_request, [dataset]).get(dataset)
    context = {
        "object": production_request,
        "dataset": dataset,
        "catalogue": catalogue,
        "target": catalogue and staging_target(catalogue),
        "days": DEADLINE.days,
    }
    return render(request, "datasets/stage.html", context)


@require_POST
def ask(request: AuthenticatedRequest, key: str) -> HttpResponse:
    """Let a worker ask for the progress now."""
    return _act(request, key, ask_now, "The catalogue will be asked in a moment.")


@require_POST
def cancel(request: AuthenticatedRequest, key: str) -> HttpResponse:
    """Stop following a dataset."""
    return _act(request, key, cancel_waiting, "The portal no longer waits for this dataset.")


def _act(
    request: AuthenticatedRequest, key: str, act: Callable[..., None], message: str
) -> HttpResponse:
    """Act on the staging of the field `staging`. Raises `Http404` if it is not of this request."""
    production_request = request_or_404(request.user, key)
    check_may_stage(request.user, production_request)
    number = number_in(request.POST, "staging")
    staging = StagingRequest.objects.filter(request=production_request, pk=number or 0).first()
    if staging is None:
        raise Http404
    with show_errors(request):
        act(staging=staging, by=request.user, at=timezone.now())
        messages.success(request, message)
    return _back(production_request)


def _back(production_request: Request) -> HttpResponse:
    return redirect(f"{production_request.get_absolute_url()}#input-datasets")
