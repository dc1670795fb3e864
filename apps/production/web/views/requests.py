"""List, queue and page of requests, and the moves made there. The form is in `form_views`."""

from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.functional import SimpleLazyObject
from django.views.decorators.http import require_POST, require_safe

from apps.accounts.web.request import AuthenticatedRequest
from apps.core.domain.events import events_of
from apps.core.domain.pagination import newest_first
from apps.core.web.errors import show_errors
from apps.production.domain.actors import may
from apps.production.domain.approvals.overview import approval_of, said
from apps.production.domain.approvals.slots import slots_of
from apps.production.domain.checks.report import warnings_at_submission
from apps.production.domain.content.changes import may_change
from apps.production.domain.content.stages import content_of, ingredients_of, stages_shown
from apps.production.domain.discussion import threads_of
from apps.production.domain.estimates.past import estimate_for
from apps.production.domain.holds import holds_over
from apps.production.domain.lifecycle.moves import SERVICES, set_priority
from apps.production.domain.lifecycle.offered_moves import moves_for
from apps.production.domain.lineage.links import may_rearrange, related_to
from apps.production.domain.lineage.templates import may_manage
from apps.production.domain.queue.level import level_of
from apps.production.domain.queue.lines import line_of, queue_length
from apps.production.domain.queue.order import is_in_line
from apps.production.domain.queue.shares import ranks_by_class
from apps.production.domain.requests.needs import needs_of
from apps.production.domain.requests.standing import standing_of, steps_of, totals_of
from apps.production.enums import CLOSED, IN_PRODUCTION, UNSENT, Actor, Verb
from apps.production.filters import RequestFilter
from apps.production.models import Request
from apps.production.permissions import may_edit, may_prioritise
from apps.production.web.forms.moves import PriorityForm, ReasonForm, SuccessorForm
from apps.production.web.forms.request import writable_experiments
from apps.production.web.lookup import request_or_404


@require_safe
def request_list(request: AuthenticatedRequest) -> HttpResponse:
    visible = Request.objects.visible_to(request.user).select_related("experiment", "created_by")
    found = RequestFilter(request.GET, queryset=visible, request=request)
    shown = found.qs if found.is_valid() else visible.none()
    context = {
        "filter": found,
        "filtered": not found.is_valid() or any(value not in (None, "") for value in found.form.cleaned_data.values()),
        "page": newest_first(shown, by="created_at", query=request.GET),
        "may_write": writable_experiments(request.user).exists(),
    }
    return render(request, "production/request_list.html", context)


@require_safe
def request_detail(request: AuthenticatedRequest, key: str) -> HttpResponse:
    """The page of a request; `?do=approve` opens the form of a move that this person may make now."""
    wanted = request_or_404(request.user, key)
    asked = request.GET.get("do", "")
    return _detail(request, wanted, asked=asked)


@require_POST
def move_request(request: AuthenticatedRequest, key: str, verb: str) -> HttpResponse:
    """Make one move; problems come back beside the form, a lost race as a message on the request as it is now."""
    if verb not in SERVICES:
        raise Http404
    wanted, form = request_or_404(request.user, key), _form_of(verb)(request.POST)
    if not form.is_valid():
        return _detail(request, wanted, asked=verb, form=form)
    given = dict(form.cleaned_data)
    if "successor" in given:
        given["successor"] = Request.objects.visible_to(request.user).filter(key=given["successor"]).first()
    with show_errors(request, form):
        SERVICES[Verb(verb)](request=wanted, by=request.user, at=timezone.now(), **given)
        messages.success(request, said(wanted, verb))
    if form.errors.keys() & form.fields.keys():
        return _detail(request, wanted, asked=verb, form=form)
    if form.errors:  # of what the request holds
        return redirect(f"{reverse('production:request-edit', args=[key])}?check=1")
    return redirect(wanted)


@require_POST
def prioritise(request: AuthenticatedRequest, key: str) -> HttpResponse:
    wanted, form = request_or_404(request.user, key), PriorityForm(request.POST)
    if form.is_valid():
        with show_errors(request, form):
            set_priority(request=wanted, by=request.user, at=timezone.now(), **form.cleaned_data)
            messages.success(request, f"{wanted} has priority {level_of(wanted)}.")
    return _detail(request, wanted, asked="priority", form=form) if form.errors else redirect(wanted)


def _form_of(verb: str) -> type[ReasonForm]:
    return SuccessorForm if verb == Verb.SUPERSEDE else ReasonForm


def _focus_problem(form: Any) -> None:
    """Have a person begin at the first field with a problem, if there is a form that was sent."""
    name = next((name for name in form.errors if name in form.fields), None) if form is not None else None
    if name is not None:
        form.fields[name].widget.attrs["autofocus"] = True


def _detail(request: AuthenticatedRequest, wanted: Request, *, asked: str, form: Any = None) -> HttpResponse:
    user, status = request.user, 400 if form is not None else 200
    _focus_problem(form)
    at = timezone.now()
    slots: Any = SimpleLazyObject(lambda: slots_of(wanted, user, at))
    moves, events = moves_for(user, wanted, at, slots=slots), list(events_of(wanted))
    step = next((move for move in moves if move.verb == asked), None)
    prioritises = may_prioritise(user, wanted)
    if form is None and step is not None:
        form = _form_of(asked)(initial={"version": wanted.version}, reason_needed=step.reason_needed)
    elif form is None and asked == "priority" and prioritises:
        form = PriorityForm(initial=_level(wanted), reason_needed=True)
    elif form is not None and step is None and not (asked == "priority" and prioritises):
        raise PermissionDenied
    threads, line, written = threads_of(wanted), line_of(wanted, user=user, at=at), content_of(wanted)
    start = line.start.days if line and line.start else None
    context = {
        "object": wanted,
        "standing": standing_of(wanted, events, user, to_sign=any(move.verb is Verb.APPROVE for move in moves)),
        "approval": approval_of(wanted, user, at, slots=slots),
        "steps": steps_of(wanted),
        "stages": stages_shown(wanted),
        "ingredients": ingredients_of(wanted),
        "totals": totals_of(wanted),
        "holds": holds_over(wanted),
        "needs": needs_of(wanted, at),
        "submission_warnings": warnings_at_submission(events),
        "begun": wanted.state in IN_PRODUCTION and not is_in_line(wanted),
        "estimate": None if wanted.state in CLOSED else estimate_for(written, wanted.experiment, at, begins=start),
        "events": events,
        "moves": moves,
        "step": step,
        "form": form,
        "may_edit": may_edit(user, wanted) and may_change(wanted.state, written),
        "may_prioritise": prioritises,
        "line": line,
        "queue_length": queue_length() if line else 0,
        "by_class": ranks_by_class(wanted, at=at) if asked == "priority" and prioritises else [],
        "threads": threads,
        "may_clone": may(user, Actor.LIAISON, wanted),
        "may_keep": may_manage(user, wanted.experiment_id),
        "related": related_to(wanted),
        "may_rearrange": wanted.state in UNSENT and may_rearrange(user, wanted),
        "open_threads": sum(thread.is_open for thread in threads),
    }
    return render(request, "production/request_detail.html", context, status=status)


def _level(request: Request) -> dict[str, Any]:
    return {"version": request.version, "priority": request.priority, "priority_class": request.priority_class}
