"""Writing, editing, withdrawing and resolving in the discussion of a request."""

from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST

from apps.accounts.web.request import AuthenticatedRequest
from apps.core.errors import InvalidFields, InvalidTransition, NotAllowed
from apps.production.domain import discussion
from apps.production.models import Comment, Request
from apps.production.web.forms.moves import CommentForm, add_problems
from apps.production.web.lookup import request_or_404


@require_http_methods(["GET", "HEAD", "POST"])
def comment(request: AuthenticatedRequest, key: str) -> HttpResponse:
    """Write about a field, `?about=stages.0.jobs`, or answer in a thread, `?thread=7`."""
    wanted = request_or_404(request.user, key)
    sent = request.POST if request.method == "POST" else request.GET
    number = sent.get("thread", "")
    thread = _comment(wanted, int(number)) if number.isascii() and number.isdigit() and len(number) < 18 else None
    fields = discussion.fields_of(wanted)
    if request.method != "POST":
        about = sent.get("about", "")
        form = CommentForm(fields=fields, initial={"field": about, "thread": thread.pk if thread else None})
        return _page(request, wanted, form, thread)
    form = CommentForm(request.POST, fields=fields)
    if not form.is_valid():
        return _page(request, wanted, form, thread)
    given = form.cleaned_data
    by, at = request.user, timezone.now()
    try:
        made = discussion.write_comment(
            request=wanted, text=given["text"], path=given["field"], thread=thread, by=by, at=at
        )
    except InvalidFields as error:
        add_problems(form, error.problems)
        return _page(request, wanted, form, thread)
    _warn(request, made)
    return redirect(made)


@require_http_methods(["GET", "HEAD", "POST"])
def edit_comment(request: AuthenticatedRequest, key: str, number: int) -> HttpResponse:
    wanted: Request = get_object_or_404(Request.objects.visible_to(request.user), key=key)
    found = _comment(wanted, number)
    if found.by_id != request.user.pk or found.withdrawn_at:
        raise PermissionDenied("Only who wrote this may change it.")
    if request.method != "POST":
        return _page(request, wanted, CommentForm(fields=None, initial={"text": found.text}), found, edited=True)
    form = CommentForm(request.POST, fields=None)
    if form.is_valid():
        try:
            found = discussion.edit_comment(
                comment=found, text=form.cleaned_data["text"], by=found.by, at=timezone.now()
            )
        except InvalidFields as error:
            add_problems(form, error.problems)
        else:
            _warn(request, found)
            return redirect(found)
    return _page(request, wanted, form, found, edited=True)


@require_POST
def change_comment(request: AuthenticatedRequest, key: str, number: int, verb: str) -> HttpResponse:
    """`resolve` or `reopen` a thread, `withdraw` one's own comment."""
    wanted: Request = get_object_or_404(Request.objects.visible_to(request.user), key=key)
    found, by, at = _comment(wanted, number), request.user, timezone.now()
    try:
        if verb == "withdraw":
            discussion.withdraw_comment(comment=found, by=by, at=at)
        elif verb in {"resolve", "reopen"}:
            discussion.resolve_thread(comment=found, by=by, at=at, resolved=verb == "resolve")
        else:
            raise Http404
    except NotAllowed as error:
        raise PermissionDenied(str(error)) from None
    except InvalidTransition as error:
        messages.error(request, str(error))
    return redirect(found)


def _comment(wanted: Request, number: int) -> Comment:
    found: Comment = get_object_or_404(wanted.comments.select_related("request", "by", "thread"), pk=number)
    return found


def _warn(request: AuthenticatedRequest, made: Comment) -> None:
    """Tell who was mentioned in vain; whether there is such a person is not told."""
    named = discussion.mentions_in(made.text)
    known = {person.username for person in discussion.people_for(made.request, named)}
    if lost := [name for name in named if name not in known]:
        messages.warning(request, f"Not told, as they do not see this request: {', '.join(lost)}.")


def _page(
    request: AuthenticatedRequest, wanted: Request, form: Any, thread: Comment | None, *, edited: bool = False
) -> HttpResponse:
    context = {"object": wanted, "form": form, "thread": thread, "edited": edited}
    return render(request, "production/comment.html", context, status=400 if form.errors else 200)
