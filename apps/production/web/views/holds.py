"""The page of holds: what is held, by whom and why; placing and lifting them."""

from typing import Any

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST

from apps.accounts.models import Experiment, User
from apps.accounts.permissions import scope_of
from apps.accounts.web.request import AuthenticatedRequest
from apps.core.domain.pagination import newest_first
from apps.core.errors import InvalidFields, InvalidTransition, NotAllowed
from apps.production.domain import holds
from apps.production.domain.requests.reasons import MAX_REASON
from apps.production.models import Stage
from apps.production.web.forms.moves import add_problems


class HoldForm(forms.Form):
    """What to hold. A stage is chosen by its request's number and its own."""

    experiment = forms.ModelChoiceField(
        Experiment.objects.all(),
        to_field_name="key",
        required=False,
        empty_label="All production",
        help_text="Not needed where a request is named.",
    )
    request = forms.CharField(required=False, max_length=24, help_text="To hold one stage: its request, as NOVA-0231.")
    stage = forms.IntegerField(
        required=False, min_value=1, max_value=10_000, label="Stage", help_text="Its number: 1, 2, …"
    )
    reason = forms.CharField(max_length=MAX_REASON, widget=forms.Textarea(attrs={"rows": 2}))

    def __init__(self, *args: Any, user: User, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._user = user

    def clean(self) -> dict[str, Any]:
        """Find the stage; naming half of it would hold far more than was meant."""
        data: dict[str, Any] = dict(super().clean() or {})
        key, number = data.get("request"), data.get("stage")
        data["found"] = None
        if key or number:
            stages = Stage.objects.select_related("request__experiment")
            found = stages.filter(request__key=key, position=(number or 0) - 1).first()
            visible = found is not None and scope_of(self._user).sees(found.request.experiment_id)
            data["found"] = found if visible else None
            if not visible:
                self.add_error("stage", "There is no such stage: give the request's number and the stage's.")
        return data


@require_http_methods(["GET", "HEAD", "POST"])
def hold_list(request: AuthenticatedRequest) -> HttpResponse:
    """Show the holds, those placed last first; POST places one."""
    user = request.user
    form = HoldForm(request.POST if request.method == "POST" else None, initial=request.GET.dict(), user=user)
    status = 200
    if request.method == "POST":
        if form.is_valid() and _place(request, form):
            return redirect("production:holds")
        status = 400
    visible = holds.visible_holds(user)
    page = newest_first(visible, by="at", query=request.GET)
    context = {
        "page": page,
        "count": visible.count(),
        "rows": [(hold, holds.what_of(hold), holds.may_lift(user, hold)) for hold in page.rows],
        "past": [(hold, holds.what_of(hold)) for hold in holds.past_holds(user)],
        "form": form if holds.may_hold_some(user) else None,
    }
    return render(request, "production/holds.html", context, status=status)


@require_POST
def lift(request: AuthenticatedRequest, pk: int) -> HttpResponse:
    hold = get_object_or_404(holds.visible_holds(request.user), pk=pk)
    user, reason = request.user, request.POST.get("reason", "")
    try:
        holds.lift_hold(hold=hold, by=user, at=timezone.now(), reason=reason)
    except NotAllowed as error:
        raise PermissionDenied(str(error)) from None
    except (InvalidTransition, InvalidFields) as error:
        messages.error(request, str(error))
    else:
        messages.success(request, f"No longer held: {holds.what_of(hold)}.")
    return redirect("production:holds")


def _place(request: AuthenticatedRequest, form: HoldForm) -> bool:
    given = form.cleaned_data
    try:
        hold = holds.place_hold(
            by=request.user,
            at=timezone.now(),
            reason=given["reason"],
            experiment=given["experiment"],
            stage=given["found"],
        )
    except NotAllowed as error:
        raise PermissionDenied(str(error)) from None
    except InvalidTransition as error:
        form.add_error(None, str(error))
    except InvalidFields as error:
        add_problems(form, error.problems)
    else:
        messages.success(request, f"Held: {holds.what_of(hold)}. No new jobs start; what runs goes on.")
        return True
    return False
