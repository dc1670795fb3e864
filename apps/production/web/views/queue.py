"""The queue and the page of shares: to look at, to move requests, to set shares."""

import re
from collections.abc import Mapping
from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from apps.accounts.permissions import is_opg
from apps.accounts.web.request import AuthenticatedRequest
from apps.core.errors import InvalidFields, InvalidTransition, NotAllowed, StaleState
from apps.production.domain.holds import wide_holds
from apps.production.domain.queue import placement, shares
from apps.production.domain.queue.lines import queue_history, queue_lines, queue_state
from apps.production.domain.queue.scoring import read_shares
from apps.production.models import Request
from apps.production.permissions import may_set_shares
from apps.production.web.forms.moves import add_problems
from apps.production.web.forms.queue import MoveForm, SharesForm, UndoForm

#: A preview lists no more requests than this.
MOST_SHIFTS = 200


@require_safe
def queue(request: AuthenticatedRequest) -> HttpResponse:
    return _queue(request, query=request.GET)


@require_POST
def move(request: AuthenticatedRequest, key: str) -> HttpResponse:
    """Move a request to a rank; problems come back in its row, a lost race as a message."""
    wanted, form = _wanted(request, key), MoveForm(request.POST)
    if not form.is_valid():
        return _queue(request, query=request.POST, failed=key, form=form)
    given = form.cleaned_data
    try:
        old = placement.move_request(request=wanted, by=request.user, at=timezone.now(), **given)
    except InvalidFields as error:
        add_problems(form, error.problems)
        return _queue(request, query=request.POST, failed=key, form=form)
    except NotAllowed as error:
        raise PermissionDenied(str(error)) from None
    except (InvalidTransition, StaleState) as error:
        messages.error(request, str(error))
    else:
        messages.success(request, f"{wanted} moved from rank {old} to {given['to_rank']}.")
    return _back(request)


@require_POST
def undo(request: AuthenticatedRequest, key: str) -> HttpResponse:
    """Let the score decide again where a request goes."""
    wanted, form = _wanted(request, key), UndoForm(request.POST)
    given = form.cleaned_data if form.is_valid() else {"reason": ""}
    try:
        rank = placement.undo_move(request=wanted, by=request.user, at=timezone.now(), **given)
    except NotAllowed as error:
        raise PermissionDenied(str(error)) from None
    except InvalidFields as error:
        messages.error(request, f"{wanted} was not moved. {' '.join(error.problems['reason'])}")
    except (InvalidTransition, StaleState) as error:
        messages.error(request, str(error))
    else:
        messages.success(request, f"The score decides again where {wanted} goes: rank {rank}.")
    return _back(request)


@require_http_methods(["GET", "HEAD", "POST"])
def share_page(request: AuthenticatedRequest) -> HttpResponse:
    """Show the shares; POST shows what would become of others (`do=preview`), or saves them."""
    if not (is_opg(request.user) or may_set_shares(request.user)):
        raise PermissionDenied("Shares are a matter of the OPG; a request's page tells its experiment's own.")
    if request.method == "POST" and not may_set_shares(request.user):
        raise PermissionDenied("Only an approver of the OPG for all experiments, or an admin, may set shares.")
    now, state = read_shares(), queue_state()
    rows = shares.share_rows(now)
    form = SharesForm(request.POST if request.method == "POST" else None, rows=rows, initial={"version": state.version})
    context: dict[str, Any] = {"form": form, "as_of": now.as_of, "days": now.used_days}
    status = 200
    if request.method == "POST":
        if form.is_valid() and request.POST.get("do") == "preview":
            status = 200 if _preview(form, context) else 400
        elif form.is_valid() and _save(request, form):
            return redirect("production:shares")
        else:
            status = 400
    context["may_set"] = may_set_shares(request.user)
    return render(request, "production/shares.html", context, status=status)


def _preview(form: SharesForm, context: dict[str, Any]) -> bool:
    try:
        rows, shifts = shares.what_if_shares(form.weights, at=timezone.now())
    except InvalidFields as error:
        add_problems(form, _by_field(error.problems))
        return False
    context["then"] = {row.experiment.pk: row.share for row in rows}
    context["shifts"], context["more"] = shifts[:MOST_SHIFTS], max(0, len(shifts) - MOST_SHIFTS)
    return True


def _save(request: AuthenticatedRequest, form: SharesForm) -> bool:
    given = form.cleaned_data
    try:
        changed = shares.set_shares(
            weights=form.weights,
            by=request.user,
            at=timezone.now(),
            reason=given["reason"],
            version=given["version"],
        )
    except InvalidFields as error:
        add_problems(form, _by_field(error.problems))
        return False
    except StaleState as error:
        form.add_error(None, str(error))
        return False
    names = ", ".join(experiment.name for experiment in changed)
    messages.success(request, f"Shares are set: {names}." if changed else "Nothing was changed.")
    return True


def _by_field(problems: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """Name the fields of the form, which are by experiment."""
    return {name if name == "reason" else f"share-{name}": texts for name, texts in problems.items()}


def _queue(
    request: AuthenticatedRequest, *, query: Mapping[str, Any], failed: str = "", form: Any = None
) -> HttpResponse:
    after = str(query.get("after", ""))
    number = int(after) if re.fullmatch("[0-9]{1,9}", after) else 0
    part = queue_lines(user=request.user, at=timezone.now(), after=number)
    if failed and not any(row.may_move for row in part.rows if row.request.key == failed):
        raise PermissionDenied("Only an approver of the OPG who did not make or submit it may move it.")
    context = {
        "part": part,
        "after": number,
        "failed": failed,
        "form": form,
        "history": queue_history(user=request.user),
        "sees_all": is_opg(request.user),
        "holds": wide_holds(request.user),
    }
    return render(request, "production/queue.html", context, status=400 if failed else 200)


def _back(request: AuthenticatedRequest) -> HttpResponse:
    after = request.POST.get("after", "")
    return redirect("/requests/queue/" + (f"?after={after}" if re.fullmatch("[0-9]{1,9}", after) else ""))


def _wanted(request: AuthenticatedRequest, key: str) -> Request:
    found: Request = get_object_or_404(Request.objects.visible_to(request.user), key=key)
    return found
