"""Pages to re-classify history: start a preview, show its result, apply or cancel it."""

from datetime import timedelta

from django import forms
from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from apps.accounts.web.http_request import AuthenticatedRequest
from apps.core.errors import NotAllowed
from apps.core.web.errors import show_errors
from apps.diagnosis.domain.verdicts.reclassification import apply_run, cancel_run, start_preview
from apps.diagnosis.enums import RECLASSIFYING, ReclassificationState
from apps.diagnosis.models import Reclassification
from apps.diagnosis.permissions import may_edit_catalogue

SHOWN = 20


class SinceForm(forms.Form):
    """The period of history to re-classify."""

    days = forms.IntegerField(min_value=1, max_value=3650, initial=30, label="Days back")


def _check_may_see(request: AuthenticatedRequest) -> None:
    if not may_edit_catalogue(request.user):
        raise NotAllowed("Only approvers and admins of the OPG can re-classify history.")


@require_http_methods(["GET", "HEAD", "POST"])
def reclassifications(request: AuthenticatedRequest) -> HttpResponse:
    """List runs, and start a preview."""
    _check_may_see(request)
    form = SinceForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        at = timezone.now()
        with show_errors(request):
            return redirect(
                start_preview(
                    since=at - timedelta(days=form.cleaned_data["days"]), by=request.user, at=at
                )
            )
    context = {"form": form, "runs": Reclassification.objects.all()[:SHOWN]}
    return render(
        request,
        "diagnosis/known_errors/reclassifications.html",
        context,
        status=400 if form.errors else 200,
    )


@require_http_methods(["GET", "HEAD", "POST"])
def reclassification(request: AuthenticatedRequest, pk: int) -> HttpResponse:
    """Show a run with its progress and changes; apply or cancel it."""
    _check_may_see(request)
    run = get_object_or_404(Reclassification, pk=pk)
    if request.method == "POST":
        with show_errors(request):
            act = apply_run if request.POST.get("do") == "apply" else cancel_run
            act(run=run, by=request.user, at=timezone.now())
            messages.success(request, f"Re-classification {run.get_state_display().lower()}.")
        return redirect(run)
    context = {
        "run": run,
        "moves": sorted(run.moves.items(), key=lambda move: (-move[1], move[0])),
        "is_running": run.state in RECLASSIFYING,
        "may_apply": run.state == ReclassificationState.PREVIEWED and run.changed,
    }
    return render(request, "diagnosis/known_errors/reclassification.html", context)
