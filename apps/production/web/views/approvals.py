"""The inbox, delegations, and the withdrawal of signatures. Signing is a move, in `portal`."""

from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from apps.accounts.web.http_request import AuthenticatedRequest
from apps.core.web.errors import show_errors
from apps.production.domain.approvals.delegations import (
    delegate,
    delegations_of,
    may_delegate,
    revoke_delegation,
)
from apps.production.domain.approvals.inbox import group_items, inbox_items, waiting_for
from apps.production.domain.lifecycle import moves
from apps.production.models import Delegation, Request
from apps.production.web.forms.approvals import DelegationForm, WithdrawForm

#: Maximum numbers of requests and delegations in the inbox.
MAX_SHOWN = 50
MAX_DELEGATIONS = 20


@require_safe
def inbox(request: AuthenticatedRequest) -> HttpResponse:
    return _inbox(request, DelegationForm(user=request.user))


@require_POST
def create_delegation(request: AuthenticatedRequest) -> HttpResponse:
    """Create a delegation."""
    form = DelegationForm(request.POST, user=request.user)
    if form.is_valid():
        with show_errors(request, form):
            made = delegate(by=request.user, at=timezone.now(), **form.delegation())
            messages.success(
                request, f"{made.to_user} can sign for you in this period, under their own name."
            )
    if form.errors:
        return _inbox(request, form)
    return redirect("production:inbox")


@require_POST
def revoke(request: AuthenticatedRequest, pk: int) -> HttpResponse:
    delegation = get_object_or_404(delegations_of(request.user), pk=pk)
    revoke_delegation(delegation=delegation, by=request.user, at=timezone.now())
    messages.success(
        request, f"{delegation.to_user} can no longer sign for {delegation.from_user}."
    )
    return redirect("production:inbox")


@require_POST
def withdraw_signature(request: AuthenticatedRequest, key: str, pk: int) -> HttpResponse:
    """Withdraw the user's own signature."""
    production_request = get_object_or_404(Request.objects.visible_to(request.user), key=key)
    form = WithdrawForm(request.POST)
    if not form.is_valid():
        messages.error(request, "Enter a reason for withdrawing your signature.")
        return redirect(production_request)
    with show_errors(request):
        moves.withdraw_signature(
            request=production_request,
            signature=pk,
            by=request.user,
            at=timezone.now(),
            **form.cleaned_data,
        )
        messages.success(request, f"Your signature on {production_request} is withdrawn.")
    return redirect(production_request)


def _inbox(request: AuthenticatedRequest, form: DelegationForm) -> HttpResponse:
    at = timezone.now()
    user = request.user
    waiting = waiting_for(user, at)
    with_relations = waiting.select_related("experiment", "submitted_by")
    shown = list(with_relations.prefetch_related("attention")[:MAX_SHOWN])
    delegations: Any = delegations_of(user)[:MAX_DELEGATIONS]
    context = {
        "groups": group_items(inbox_items(shown, user, at)),
        "shown": len(shown),
        "number": waiting.count(),
        "today": timezone.localdate(at),
        "delegations": [
            (delegation, _delegation_status(delegation, at)) for delegation in delegations
        ],
        "form": form if may_delegate(user) else None,
    }
    return render(
        request, "production/desk/inbox.html", context, status=400 if form.errors else 200
    )


def _delegation_status(delegation: Delegation, at: Any) -> str:
    if delegation.revoked_at is not None:
        return "revoked"
    if at >= delegation.until_at:
        return "over"
    return "now" if at >= delegation.from_at else "planned"
