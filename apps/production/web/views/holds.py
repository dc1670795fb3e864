"""The page of holds: list, place and lift them."""

from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST

from apps.accounts.domain.experiments import visible_experiments
from apps.accounts.models import Experiment, User
from apps.accounts.web.http_request import AuthenticatedRequest
from apps.core.domain.pagination import newest_first
from apps.core.web.errors import show_errors
from apps.production.domain import holds
from apps.production.domain.reasons import MAX_REASON
from apps.production.enums import RequestState
from apps.production.models import Request

#: How many requests on hold the page lists. The list of requests has all of them.
PAGE_SIZE = 50


class HoldForm(forms.Form):
    experiment = forms.ModelChoiceField(
        Experiment.objects.none(),
        to_field_name="key",
        required=False,
        empty_label="All production",
        help_text="Not needed with a request.",
    )
    request = forms.CharField(
        required=False,
        max_length=24,
        help_text="To hold one stage, the key of its request. Example: NOVA-0231.",
    )
    stage = forms.IntegerField(
        required=False,
        min_value=1,
        max_value=10_000,
        label="Stage",
        help_text="Its number: 1, 2, …",
    )
    reason = forms.CharField(max_length=MAX_REASON, widget=forms.Textarea(attrs={"rows": 2}))

    def __init__(self, user: User, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["experiment"].queryset = visible_experiments(user)  # type: ignore[attr-defined]


@require_http_methods(["GET", "HEAD", "POST"])
def hold_list(request: AuthenticatedRequest) -> HttpResponse:
    """List the holds, newest first. POST places a hold."""
    user = request.user
    form = HoldForm(
        user, request.POST if request.method == "POST" else None, initial=request.GET.dict()
    )
    if form.is_valid():
        with show_errors(request, form):
            cleaned = form.cleaned_data
            stage = holds.stage_named(user, key=cleaned.pop("request"), number=cleaned.pop("stage"))
            hold = holds.place_hold(stage=stage, by=user, at=timezone.now(), **cleaned)
            messages.success(
                request,
                f"On hold: {holds.hold_subject(hold)}. No new jobs start; running jobs continue.",
            )
            return redirect("production:holds")
    visible = holds.visible_holds(user)
    page = newest_first(visible, by="at", query=request.GET)
    rows = []
    for hold in page.rows:
        rows.append((hold, holds.hold_subject(hold), holds.may_lift(user, hold)))
    context = {
        "page": page,
        "count": visible.count(),
        "rows": rows,
        "requests": Request.objects.visible_to(user)
        .filter(state=RequestState.ON_HOLD)
        .order_by("-pk")[:PAGE_SIZE],
        "past": [(hold, holds.hold_subject(hold)) for hold in holds.past_holds(user)],
        "form": form if holds.may_hold_some(user) else None,
    }
    return render(request, "production/holds.html", context, status=400 if form.is_bound else 200)


@require_POST
def lift(request: AuthenticatedRequest, pk: int) -> HttpResponse:
    hold = get_object_or_404(holds.visible_holds(request.user), pk=pk)
    with show_errors(request):
        holds.lift_hold(
            hold=hold, by=request.user, at=timezone.now(), reason=request.POST.get("reason", "")
        )
        messages.success(request, f"Hold lifted: {holds.hold_subject(hold)}.")
    if hold.stage and request.POST.get("to") == "request":
        return redirect(hold.stage.request)
    return redirect("production:holds")
