"""The page of a request, and its moves."""

from collections.abc import Callable
from functools import partial
from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from apps.accounts.web.http_request import AuthenticatedRequest
from apps.core.web.errors import show_errors
from apps.portal.pages.request.actions import PRIORITY, RESCHEDULE
from apps.portal.pages.request.page import RequestPage, request_page
from apps.portal.pages.request.status import lacks_cluster
from apps.portal.web.forms import StartForm
from apps.production.domain.lifecycle.messages import move_message
from apps.production.domain.lifecycle.moves import MOVE_FUNCTIONS, set_priority
from apps.production.domain.lifecycle.transitions import transitions_from
from apps.production.domain.requests.reschedule import reschedule
from apps.production.enums import Verb
from apps.production.models import Request
from apps.production.web.forms.moves import (
    PriorityForm,
    ReasonForm,
    RescheduleForm,
    ReviewForm,
    SuccessorForm,
)
from apps.production.web.lookup import request_or_404
from apps.submission.domain.arrays.assignment import BEGINNINGS, assign_request

#: The forms of moves that need more than a reason.
MOVE_FORMS: dict[str, type[ReasonForm]] = {
    Verb.SUPERSEDE.value: SuccessorForm,
    Verb.REQUEST_CHANGES.value: ReviewForm,
}


@require_safe
def request_detail(request: AuthenticatedRequest, key: str) -> HttpResponse:
    """Show the page of a request. `?do=approve` opens the form of an available move."""
    return _page(request, request_or_404(request.user, key), open_form=request.GET.get("do", ""))


@require_POST
def move_request(request: AuthenticatedRequest, key: str, verb: str) -> HttpResponse:
    """Make a move.

    Problems are shown in the form, a conflict as a message on the current request.
    """
    if verb not in MOVE_FUNCTIONS:
        raise Http404
    production_request = request_or_404(request.user, key)
    needed = any(
        step.reason_needed for step in transitions_from(production_request.state, Verb(verb))
    )
    form = _move_form(production_request, verb)(request.POST, reason_needed=needed)
    if not form.is_valid():
        return _page(request, production_request, open_form=verb, form=form)

    fields = dict(form.cleaned_data)
    if "successor" in fields:
        fields["successor"] = (
            Request.objects.visible_to(request.user).filter(key=fields["successor"]).first()
        )
    cluster = fields.pop("cluster", None)
    most_in_flight = fields.pop("most_in_flight", None)
    move: Callable[..., Any] = MOVE_FUNCTIONS[Verb(verb)]
    if cluster:
        move = partial(
            assign_request, verb=Verb(verb), cluster=cluster, most_in_flight=most_in_flight
        )
    with show_errors(request, form):
        move(request=production_request, by=request.user, at=timezone.now(), **fields)
        if cluster:
            production_request.refresh_from_db(fields=["state"])
        messages.success(request, move_message(production_request, verb, at=timezone.now()))
    if form.errors.keys() & form.fields.keys() or (cluster and form.errors):
        return _page(request, production_request, open_form=verb, form=form)
    # The errors are in the content of the request.
    if form.errors:
        return redirect(f"{reverse('production:request-edit', args=[key])}?check=1")
    return redirect(production_request)


@require_POST
def prioritise(request: AuthenticatedRequest, key: str) -> HttpResponse:
    production_request = request_or_404(request.user, key)
    form = PriorityForm(request.POST)
    if form.is_valid():
        with show_errors(request, form):
            set_priority(
                request=production_request, by=request.user, at=timezone.now(), **form.cleaned_data
            )
            messages.success(
                request, f"The priority of {production_request} is now {production_request.level}."
            )
    if form.errors:
        return _page(request, production_request, open_form=PRIORITY, form=form)
    return redirect(production_request)


@require_POST
def reschedule_request(request: AuthenticatedRequest, key: str) -> HttpResponse:
    """Postpone the deadline, request a class, or both."""
    production_request = request_or_404(request.user, key)
    form = RescheduleForm(request.POST)
    deadline_before = production_request.deadline
    if form.is_valid():
        with show_errors(request, form):
            changed = reschedule(
                request=production_request, by=request.user, at=timezone.now(), **form.cleaned_data
            )
            if changed.deadline and changed.deadline != deadline_before:
                messages.success(
                    request, f"The deadline of {changed} is now {changed.deadline:%-d %b %Y}."
                )
            if requested := form.cleaned_data["requested_class"]:
                messages.success(
                    request, f"Class {requested} is requested for {changed}. An approver decides."
                )
    if form.errors:
        return _page(request, production_request, open_form=RESCHEDULE, form=form)
    return redirect(production_request)


def _page(
    request: AuthenticatedRequest, production_request: Request, *, open_form: str, form: Any = None
) -> HttpResponse:
    """Render the page with the open form. A submitted form is shown with its errors."""
    checks = request.GET.get("checks") == "now"
    page = request_page(
        request=production_request,
        user=request.user,
        at=timezone.now(),
        open_form=open_form,
        checks=checks,
    )
    context = page.context()
    if form is None:
        return render(
            request, "portal/request/request.html", {**context, "form": _empty_form(page)}
        )

    actions = page.actions
    if actions.step is None and not actions.sets_priority and not actions.reschedules:
        raise PermissionDenied
    if first := next((name for name in form.errors if name in form.fields), None):
        form.fields[first].widget.attrs["autofocus"] = True
    return render(request, "portal/request/request.html", {**context, "form": form}, status=400)


def _move_form(production_request: Request, verb: str) -> type[ReasonForm]:
    """Return the form of a move. A start asks for the cluster if none is chosen."""
    if verb in BEGINNINGS and lacks_cluster(production_request):
        return StartForm
    return MOVE_FORMS.get(verb, ReasonForm)


def _empty_form(page: RequestPage) -> ReasonForm | None:
    production_request = page.object
    step = page.actions.step
    if step is not None:
        return _move_form(production_request, step.verb)(
            initial={"version": production_request.version}, reason_needed=step.reason_needed
        )
    if page.actions.sets_priority:
        class_request = page.actions.class_request
        level = {
            "priority": production_request.priority,
            "priority_class": production_request.priority_class,
        }
        if class_request is not None:
            level["priority_class"] = class_request.data["requested"]
        return PriorityForm(initial={"version": production_request.version, **level})
    if page.actions.reschedules:
        return RescheduleForm(
            initial={"version": production_request.version, "deadline": production_request.deadline}
        )
    return None
