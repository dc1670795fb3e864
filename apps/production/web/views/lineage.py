"""Splitting a request and combining it with others, each with a preview."""

from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from apps.accounts.web.http_request import AuthenticatedRequest
from apps.core.errors import InvalidFields
from apps.core.web.errors import show_errors
from apps.core.web.query import number_in
from apps.production.domain.content.stages import content_of, with_stages
from apps.production.domain.lineage import links
from apps.production.domain.lineage.combination import MAX_COMBINED
from apps.production.domain.lineage.splits import SplitUnit, refusal_to_split, split_counts
from apps.production.enums import RequestState
from apps.production.models import Request
from apps.production.web.forms.lineage import CombineForm, SplitForm
from apps.production.web.lookup import request_or_404


@require_http_methods(["GET", "HEAD", "POST"])
def split(request: AuthenticatedRequest, key: str) -> HttpResponse:
    """Preview the parts of a request, and create them once the user confirms the preview."""
    production_request = _rearrangeable_request(request, key)
    content = content_of(production_request)
    counts = split_counts(content)
    refusal = links.refusal_to_rearrange(production_request) or refusal_to_split(content)
    form = SplitForm(
        request.POST or None,
        ways=counts,
        reason_needed=production_request.state != RequestState.DRAFT,
    )
    context: dict[str, Any] = {
        "object": production_request,
        "refusal": refusal,
        "form": form if counts else None,
    }
    if request.method != "POST" or refusal or not form.is_valid():
        return _form_page(request, "production/request/split.html", context)

    cleaned = form.cleaned_data
    how: dict[str, Any] = {"by_what": SplitUnit(cleaned["by"]), "size": cleaned["size"]}
    seen = f"{cleaned['by']} {cleaned['size']}"
    with show_errors(request, form):
        planned = links.plan_split(request=production_request, **how)
        if request.POST.get("do") != "split" or request.POST.get("seen") != seen:
            rows = []
            for part in planned.parts:
                rows.append((part.note.capitalize(), part.content.title, part.content))
            context |= {"rows": rows, "notes": planned.notes, "total": content, "seen": seen}
            return render(request, "production/request/split.html", context)

        how |= {"reason": cleaned["reason"], "version": cleaned["version"]}
        made = links.split_request(
            request=production_request, by=request.user, at=timezone.now(), **how
        )
        names = ", ".join(part.key for part in made)
        messages.success(
            request, f"Split {production_request} into {names}. Review and submit each draft."
        )
    if form.errors:
        return _form_page(request, "production/request/split.html", context)
    return redirect(production_request)


@require_http_methods(["GET", "HEAD", "POST"])
def combine(request: AuthenticatedRequest, key: str) -> HttpResponse:
    """List the candidates for combining, preview the combined request, and create it.

    Candidates that cannot be combined are listed with the reason.
    """
    production_request = _rearrangeable_request(request, key)
    refusal = links.refusal_to_rearrange(production_request)
    form = CombineForm(request.POST or None)
    context: dict[str, Any] = {"object": production_request, "refusal": refusal, "form": form}
    if not refusal:
        context |= _candidates_context(request, production_request)
    if request.POST.get("do") in {"find", "older"} and not refusal:
        context["form"] = CombineForm(initial=request.POST.dict())
        return render(request, "production/request/combine.html", context)
    if request.method != "POST" or refusal or not form.is_valid():
        return _form_page(request, "production/request/combine.html", context)

    with show_errors(request, form):
        others = _named(
            request,
            [other for other in form.cleaned_data["keys"] if other != production_request.key],
        )
        requests = [production_request, *others]
        planned = links.plan_combined(requests=requests)
        versions = {part.key: part.version for part in requests}
        seen = [f"{part.key}:{part.version}" for part in requests]
        if request.POST.get("do") != "combine" or request.POST.getlist("seen") != seen:
            rows = [(part.key, part.title, content_of(part)) for part in requests]
            context |= {
                "rows": rows,
                "notes": planned.notes,
                "total": planned.content,
                "seen": seen,
            }
            return render(request, "production/request/combine.html", context)

        reason = form.cleaned_data["reason"]
        made = links.combine_requests(
            requests=requests, by=request.user, at=timezone.now(), reason=reason, versions=versions
        )
        messages.success(
            request, f"Combined {len(requests)} requests into {made}. Review and submit the draft."
        )
        return redirect(made)
    if form.errors:
        return _form_page(request, "production/request/combine.html", context)
    return redirect(production_request)


def _candidates_context(
    request: AuthenticatedRequest, production_request: Request
) -> dict[str, Any]:
    """Return the context with the ticked candidates and the search results."""
    sent = request.POST if request.method == "POST" else request.GET
    chosen = [key[:24].replace("\0", "") for key in sent.getlist("chosen")[:MAX_COMBINED]]
    text = sent.get("text", "")[:200].replace("\0", "").strip()
    if sent.get("do") == "older":
        before = number_in(sent, "older") or 0
    else:
        before = 0
    candidates = links.candidates_for(
        production_request, request.user, text=text, before=before, chosen=chosen
    )
    return {
        "candidates": candidates.rows,
        "older": candidates.older,
        "before": before,
        "text": text,
        "chosen": chosen,
    }


def _named(request: AuthenticatedRequest, keys: list[str]) -> list[Request]:
    """Return these requests in this order.

    Raises `InvalidFields` for requests that the user cannot see or combine.
    """
    rows = with_stages(Request.objects.visible_to(request.user)).filter(key__in=keys)
    requests: dict[str, Request] = {
        production_request.key: production_request for production_request in rows
    }
    problems = []
    for key in keys:
        if key not in requests:
            problems.append(f"{key[:24]}: not found, or you do not have access.")
    if not problems:
        for key in keys:
            if not links.may_rearrange(request.user, requests[key]):
                problems.append(f"{key} is a draft. Only its liaisons can combine it.")
    if problems:
        raise InvalidFields({"others": problems[:5]})
    return [requests[key] for key in keys]


def _form_page(
    request: AuthenticatedRequest, template: str, context: dict[str, Any]
) -> HttpResponse:
    """Render the form: empty, with its errors, or with the refusal."""
    if request.method != "POST":
        status = 200
    elif context["refusal"]:
        status = 409
    else:
        status = 400
    return render(request, template, context, status=status)


def _rearrangeable_request(request: AuthenticatedRequest, key: str) -> Request:
    production_request = request_or_404(request.user, key)
    if not links.may_rearrange(request.user, production_request):
        raise PermissionDenied(
            "Only liaisons of the experiment, and approvers once it is submitted, can do this."
        )
    return production_request
