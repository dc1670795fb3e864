"""The queue with its manual moves, and the page of fair shares."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from apps.accounts.permissions import is_opg
from apps.accounts.web.http_request import AuthenticatedRequest
from apps.core.web.errors import show_errors
from apps.core.web.query import number_in
from apps.production.domain.experiment_shares import read_shares
from apps.production.domain.holds import wide_holds
from apps.production.domain.lifecycle.moves import set_priority
from apps.production.domain.outlook import find_hindrances
from apps.production.domain.priority import manual_moves, shares, what_if
from apps.production.domain.priority.listing import queue_history, queue_rows, queue_state
from apps.production.enums import RequestedPriority
from apps.production.models import Request
from apps.production.permissions import may_set_shares
from apps.production.web.forms.moves import PriorityForm
from apps.production.web.forms.queue import MoveForm, SharesForm, UndoForm

#: Maximum number of requests in a preview.
MOST_SHIFTS = 200


@dataclass(frozen=True)
class UnsavedChange:
    """An unsaved change of the queue: the key of the request, the form, and the resulting shifts.

    `kind` is `move` or `level`. Without `shifts`, the form has errors.
    """

    key: str
    kind: str
    form: Any
    shifts: Sequence[what_if.Shift] | None = None


@require_safe
def queue(request: AuthenticatedRequest) -> HttpResponse:
    return _queue(request, query=request.GET)


@require_POST
def move(request: AuthenticatedRequest, key: str) -> HttpResponse:
    """Move a request to a rank, or preview the effect.

    Errors are shown in the row of the request, conflicts as a message.
    """
    production_request = _visible_request(request, key)
    previews = request.POST.get("do") == "preview"
    form = MoveForm(request.POST, previews=previews)
    if form.is_valid():
        cleaned = form.cleaned_data
        at = timezone.now()
        if previews:
            shifts = what_if.if_moved(production_request, to_rank=cleaned["to_rank"], at=at)
            return _queue(
                request, query=request.POST, changed=UnsavedChange(key, "move", form, shifts)
            )
        with show_errors(request, form):
            old = manual_moves.move_in_queue(
                request=production_request, by=request.user, at=at, **cleaned
            )
            messages.success(
                request, f"{production_request} moved from rank {old} to {cleaned['to_rank']}."
            )
    if form.errors:
        return _queue(request, query=request.POST, changed=UnsavedChange(key, "move", form))
    return _back(request)


@require_POST
def prioritise(request: AuthenticatedRequest, key: str) -> HttpResponse:
    """Set the priority of a request, or preview the effect."""
    production_request = _visible_request(request, key)
    form = PriorityForm(request.POST)
    if form.is_valid():
        cleaned = form.cleaned_data
        at = timezone.now()
        if request.POST.get("do") == "preview":
            level = {name: cleaned[name] for name in ("priority_class", "priority")}
            shifts = what_if.if_level(production_request, at=at, **level)
            return _queue(
                request, query=request.POST, changed=UnsavedChange(key, "level", form, shifts)
            )
        with show_errors(request, form):
            set_priority(request=production_request, by=request.user, at=at, **cleaned)
            messages.success(
                request, f"The priority of {production_request} is now {production_request.level}."
            )
    if form.errors:
        return _queue(request, query=request.POST, changed=UnsavedChange(key, "level", form))
    return _back(request)


@require_POST
def undo(request: AuthenticatedRequest, key: str) -> HttpResponse:
    """Reset a request to the rank given by its score."""
    production_request = _visible_request(request, key)
    form = UndoForm(request.POST)
    if form.is_valid():
        with show_errors(request, form):
            rank = manual_moves.undo_manual_move(
                request=production_request, by=request.user, at=timezone.now(), **form.cleaned_data
            )
            messages.success(
                request, f"Reset the position of {production_request}. It has rank {rank}."
            )
    if form.errors:
        messages.error(
            request,
            (
                f"{production_request} was not moved. "
                f"{' '.join(map(str, form.errors.get('reason', ())))}"
            ),
        )
    return _back(request)


@require_http_methods(["GET", "HEAD", "POST"])
def share_page(request: AuthenticatedRequest) -> HttpResponse:
    """Show the shares. POST previews others (`do=preview`) or saves them."""
    if not (is_opg(request.user) or may_set_shares(request.user)):
        raise PermissionDenied(
            "Only the OPG can see all shares. Your requests show the share of your experiment."
        )
    if request.method == "POST" and not may_set_shares(request.user):
        raise PermissionDenied("Only approvers for all experiments and admins can set shares.")

    now = read_shares()
    state = queue_state()
    rows = shares.share_rows(now)
    form = SharesForm(
        request.POST if request.method == "POST" else None,
        rows=rows,
        initial={"version": state.version},
    )
    context: dict[str, Any] = {"form": form, "as_of": now.as_of, "days": now.used_days}
    previews = request.POST.get("do") == "preview"
    if form.is_valid():
        with show_errors(request, form):
            if not previews:
                changed = shares.set_shares(
                    weights=form.weights,
                    by=request.user,
                    at=timezone.now(),
                    reason=form.cleaned_data["reason"],
                    version=form.cleaned_data["version"],
                )
                names = ", ".join(experiment.name for experiment in changed)
                messages.success(request, f"Shares set: {names}." if changed else "No changes.")
                zero = [
                    experiment.name for experiment in changed if not form.weights[experiment.pk]
                ]
                if zero:
                    messages.warning(request, shares.warning_about_zero(zero))
                return redirect("production:shares")
            after, shifts = shares.what_if_shares(form.weights, at=timezone.now())
            context["then"] = {share_row.experiment.pk: share_row.share for share_row in after}
            zero = [share_row.experiment.name for share_row in after if not share_row.weight]
            context["warning"] = shares.warning_about_zero(zero)
            context |= {"shifts": shifts[:MOST_SHIFTS], "more": max(0, len(shifts) - MOST_SHIFTS)}
    context["may_set"] = may_set_shares(request.user)
    if form.is_bound and (form.errors or not previews):
        status = 400
    else:
        status = 200
    return render(request, "production/queue/shares.html", context, status=status)


def _queue(
    request: AuthenticatedRequest, *, query: Mapping[str, str], changed: UnsavedChange | None = None
) -> HttpResponse:
    after = number_in(query, "after") or 0
    sees_all = is_opg(request.user)
    now = read_shares()
    at = timezone.now()
    is_preview = changed is not None and changed.shifts is not None
    part = queue_rows(user=request.user, at=at, after=after, is_computed=is_preview)
    if changed and not any(row.may_reorder for row in part.rows if row.request.key == changed.key):
        raise PermissionDenied("Only approvers other than the requester can change its place.")
    context = {
        "part": part,
        "after": after,
        "changed": changed,
        "shifts": what_if.visible_shifts(changed.shifts or (), request.user)[:MOST_SHIFTS]
        if changed
        else [],
        "levels": RequestedPriority.choices,
        "history": queue_history(user=request.user),
        "sees_all": sees_all,
        "may_reorder_any": any(row.may_reorder for row in part.rows),
        "shares": shares.share_rows(now) if sees_all else [],
        "share_days": now.used_days,
        "used": {pk: now.used_part(pk) for pk in now.weights},
        "due": {pk: now.share(pk) for pk in now.weights},
        "holds": wide_holds(request.user),
        "hindrances": find_hindrances([row.request for row in part.rows], at),
    }
    is_wrong = changed is not None and changed.shifts is None
    return render(request, "production/queue/queue.html", context, status=400 if is_wrong else 200)


def _back(request: AuthenticatedRequest) -> HttpResponse:
    after = number_in(request.POST, "after")
    return redirect(reverse("production:queue") + (f"?after={after}" if after is not None else ""))


def _visible_request(request: AuthenticatedRequest, key: str) -> Request:
    return get_object_or_404(Request.objects.visible_to(request.user), key=key)
