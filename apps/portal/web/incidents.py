"""The page of an incident, and the actions of users on it."""

from collections.abc import Callable
from typing import Any

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from apps.accounts.web.http_request import AuthenticatedRequest
from apps.core.web.errors import show_errors
from apps.portal.pages.incident import incident_page
from apps.statusboard.domain.incidents.corrections import (
    correct_times,
    divide_incident,
    merge_incident,
    reopen_incident,
    split_incident,
)
from apps.statusboard.domain.incidents.incidents import close_incident, update_incident
from apps.statusboard.domain.incidents.notes import (
    acknowledge_incident,
    add_log,
    post_update,
    write_post_mortem,
)
from apps.statusboard.domain.states.timeline import BEGINNING
from apps.statusboard.models import Incident
from apps.statusboard.permissions import may_run_board
from apps.statusboard.web.forms import (
    CloseForm,
    CorrectionForm,
    DivideForm,
    LogForm,
    MergeForm,
    NoForm,
    PostForm,
    PostMortemForm,
    ReopenForm,
    UpdateForm,
)

#: The actions, by the last part of the URL: heading and button, form, domain function.
ACTIONS: dict[str, tuple[str, Callable[..., forms.Form], Callable[..., Any]]] = {
    "acknowledge": ("Acknowledge", NoForm, acknowledge_incident),
    "post": ("Post update", PostForm, post_update),
    "close": ("Close incident", CloseForm, close_incident),
    "update": ("Edit incident", UpdateForm, update_incident),
    "correct": ("Correct times", CorrectionForm, correct_times),
    "log": ("Add log lines", LogForm, add_log),
    "post-mortem": ("Write post-mortem", PostMortemForm, write_post_mortem),
    "merge": ("Merge", MergeForm, merge_incident),
    "split": ("Split", NoForm, split_incident),
    "divide": ("Divide in two", DivideForm, divide_incident),
    "reopen": ("Reopen incident", ReopenForm, reopen_incident),
}
#: What a user reads after an action, by the last part of the URL.
_DONE = {
    "acknowledge": "Incident acknowledged.",
    "post": "Update posted.",
    "close": "Incident closed.",
    "update": "Incident saved.",
    "correct": "Times corrected.",
    "log": "Log lines added.",
    "post-mortem": "Post-mortem saved.",
    "merge": "Incident merged.",
    "split": "Incident split.",
    "divide": "Incident divided in two.",
    "reopen": "Incident reopened.",
}
_WHILE_OPEN = ["post", "close", "update", "correct", "log", "merge", "divide", "post-mortem"]
_IN_HEAD = ("post", "close")
_ONCE_CLOSED = ["post", "post-mortem", "correct", "log", "merge", "divide", "reopen"]


@require_safe
def incident_detail(request: AuthenticatedRequest, pk: int) -> HttpResponse:
    return _page(request, _incident(pk))


@require_POST
def act_on_incident(request: AuthenticatedRequest, pk: int, verb: str) -> HttpResponse:
    """Perform an action.

    Problems are shown in the form, a conflict as a message on the current incident.
    """
    if verb not in ACTIONS:
        raise Http404
    if not may_run_board(request.user):
        raise PermissionDenied
    incident = _incident(pk)
    form = _form(verb, incident, request.POST)
    if form.is_valid():
        with show_errors(request, form):
            ACTIONS[verb][2](
                incident=incident, by=request.user, at=timezone.now(), **form.cleaned_data
            )
            messages.success(request, _DONE[verb])
    else:
        messages.error(request, "Nothing was saved. Correct the fields marked below.")
    if form.errors:
        return _page(request, incident, tried=(verb, form))
    return redirect(incident)


def _incident(pk: int) -> Incident:
    return get_object_or_404(
        Incident.objects.select_related("service__source", "source", "merged_into"), pk=pk
    )


def _page(
    request: AuthenticatedRequest, incident: Incident, tried: tuple[str, forms.Form] | None = None
) -> HttpResponse:
    page = incident_page(incident=incident, user=request.user, at=timezone.now())
    verbs = _WHILE_OPEN if incident.is_open else _ONCE_CLOSED
    moves = []
    if page.may_run_board:
        for verb in verbs:
            is_tried = tried is not None and tried[0] == verb
            form = tried[1] if tried and is_tried else _form(verb, incident)
            is_open = is_tried or request.GET.get("act") == verb
            # The head of the page has a button for these.
            if verb in _IN_HEAD and incident.is_open and not is_open:
                continue
            is_possible = {
                "merge": page.has_others,
                "divide": incident.merged_into_id is None,
            }
            if is_possible.get(verb, True):
                moves.append((verb, ACTIONS[verb][0], form, is_open))
    is_acting = any(is_open for *_, is_open in moves)
    context = {**vars(page), "moves": moves, "is_acting": is_acting}
    return render(request, "portal/incident.html", context, status=400 if tried else 200)


def _form(verb: str, incident: Incident, data: Any = None) -> forms.Form:
    kind = ACTIONS[verb][1]
    values = {}
    if verb in ("update", "correct"):
        names = ("state", "title", "text", "url", "started_at", "ended_at")
        values = {name: getattr(incident, name) for name in names}
    # A control for local time cannot show a time before `BEGINNING`.
    if verb == "correct":
        values = {
            name: max(value, BEGINNING) if value else None
            for name, value in values.items()
            if "_at" in name
        }
    if verb == "post-mortem":
        values = {"text": incident.post_mortem}
    more = {"incident": incident} if verb == "merge" else {}
    return kind(data, initial=values, auto_id=f"id_{verb}_%s", **more)
