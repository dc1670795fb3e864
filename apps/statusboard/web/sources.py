"""Pages of monitoring sources: create and test one, rotate its token, edit its mapping."""

from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from apps.accounts.web.http_request import AuthenticatedRequest
from apps.core.errors import DomainError
from apps.core.web.errors import show_errors
from apps.statusboard.domain.monitoring.payloads import try_mapping
from apps.statusboard.domain.monitoring.sources import (
    add_token,
    create_source,
    revoke_older_tokens,
    services_reported_beside,
    set_mapping,
    source_faults,
)
from apps.statusboard.domain.monitoring.trials import ask_for_fetch, fetch_trial, try_payload
from apps.statusboard.models import MonitoringSource
from apps.statusboard.permissions import may_run_board
from apps.statusboard.web.forms import MappingForm, PayloadForm, SourceForm


@require_http_methods(["GET", "POST"])
def new_source(request: AuthenticatedRequest) -> HttpResponse:
    """Create a source; its token is shown once."""
    _require_role(request)
    form = SourceForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        with show_errors(request, form):
            source, token = create_source(by=request.user, at=timezone.now(), **form.cleaned_data)
            return _token_page(request, source, token, is_new=True)
    status = 400 if request.method == "POST" else 200
    return render(request, "statusboard/source_new.html", {"form": form}, status=status)


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def source(request: AuthenticatedRequest, slug: str) -> HttpResponse:
    """Show a source, its tokens and services; test a payload or a fetch without storing it."""
    _require_role(request)
    monitoring_source = get_object_or_404(MonitoringSource, slug=slug)
    do = request.POST.get("do", "")
    if request.method == "POST" and do != "test":
        _act_on_source(request, monitoring_source, do)
        return redirect("statusboard:source", slug)
    form = PayloadForm(request.POST or None)
    trial = None
    if request.method == "POST" and form.is_valid():
        body = form.cleaned_data["payload"].encode()
        trial = try_payload(source=monitoring_source, body=body)
    now = timezone.now()
    context: dict[str, Any] = {
        "source": monitoring_source,
        "at": now,
        "fault": source_faults(now).get(monitoring_source.pk),
        "services": monitoring_source.services.order_by("name"),
        "others": services_reported_beside(source=monitoring_source),
        "address": _address_of(request, monitoring_source),
        "form": form,
        "trial": trial,
        "fetch": fetch_trial(source=monitoring_source, at=now),
    }
    status = 400 if form.errors else 200
    return render(request, "statusboard/source.html", context, status=status)


def _act_on_source(
    request: AuthenticatedRequest, monitoring_source: MonitoringSource, do: str
) -> None:
    now = timezone.now()
    if do == "revoke-older":
        count = revoke_older_tokens(source=monitoring_source, by=request.user, at=now)
        text = "The newest token is the only one: nothing was revoked."
        if count:
            text = f"Revoked {count} older token{'s' if count > 1 else ''}. The newest one counts."
        messages.success(request, text)
    elif do == "fetch" and monitoring_source.pull_url:
        try:
            ask_for_fetch(source=monitoring_source, at=now)
        except DomainError as error:
            messages.error(request, str(error))


def _address_of(request: AuthenticatedRequest, monitoring_source: MonitoringSource) -> str:
    return request.build_absolute_uri(f"/api/v1/feeds/{monitoring_source.slug}/")


@require_POST
def new_token(request: AuthenticatedRequest, slug: str) -> HttpResponse:
    """Create a token, which is shown once; `revoke_others` revokes the other tokens."""
    _require_role(request)
    source = get_object_or_404(MonitoringSource, slug=slug)
    revoke = bool(request.POST.get("revoke_others"))
    token = add_token(source=source, by=request.user, at=timezone.now(), revoke_others=revoke)
    return _token_page(request, source, token)


def _token_page(
    request: AuthenticatedRequest, source: MonitoringSource, token: str, *, is_new: bool = False
) -> HttpResponse:
    context = {
        "source": source,
        "token": token,
        "address": _address_of(request, source),
        "is_new": is_new,
        "others": len(source.token_hashes) - 1,
    }
    response = render(request, "statusboard/source_token.html", context)
    response["Cache-Control"] = "no-store"
    return response


@require_http_methods(["GET", "POST"])
def mapping(request: AuthenticatedRequest, slug: str) -> HttpResponse:
    """Edit the mapping of a source; “Try” parses stored payloads with it and changes nothing."""
    _require_role(request)
    source = get_object_or_404(MonitoringSource, slug=slug, feed="json")
    form = MappingForm(request.POST or None, mapping=source.mapping)
    trials = []
    if request.method == "POST" and form.is_valid():
        if "save" in request.POST:
            set_mapping(source=source, mapping=form.mapping(), by=request.user, at=timezone.now())
            return redirect("statusboard:sources")
        trials = try_mapping(source=source, mapping=form.mapping())
    context = {"form": form, "source": source, "trials": trials, "tried": "try" in request.POST}
    return render(request, "statusboard/mapping.html", context, status=400 if form.errors else 200)


def _require_role(request: AuthenticatedRequest) -> None:
    if not may_run_board(request.user):
        raise PermissionDenied
