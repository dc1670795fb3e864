"""The discussion of a request: write, edit, withdraw and resolve comments."""

from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST

from apps.accounts.web.http_request import AuthenticatedRequest
from apps.core.web.errors import show_errors
from apps.core.web.query import number_in
from apps.production.domain import discussion
from apps.production.enums import IN_PRODUCTION
from apps.production.models import Comment, Request
from apps.production.web.forms.moves import CommentForm
from apps.production.web.lookup import request_or_404


@require_http_methods(["GET", "HEAD", "POST"])
def comment(request: AuthenticatedRequest, key: str) -> HttpResponse:
    """Comment on a field, `?about=stages.0.jobs`, or reply in a thread, `?thread=7`.

    `?text=` fills in a comment that the user can change before it is sent: a proposal, whose page
    says who decides.
    """
    production_request = request_or_404(request.user, key)
    sent = request.POST if request.method == "POST" else request.GET
    number = number_in(sent, "thread")
    thread = None
    if number is not None:
        thread = _comment(production_request, number)
    fields = discussion.fields_of(production_request)
    if request.method != "POST":
        initial = {
            "field": sent.get("about", ""),
            "thread": thread.pk if thread else None,
            "text": sent.get("text", "")[: discussion.MAX_TEXT],
        }
        form = CommentForm(fields=fields, initial=initial)
        is_proposal = bool(initial["field"] and initial["text"])
        return _page(request, production_request, form, thread, is_proposal=is_proposal)

    form = CommentForm(request.POST, fields=fields)
    if form.is_valid():
        with show_errors(request, form):
            written = discussion.write_comment(
                request=production_request,
                text=form.cleaned_data["text"],
                path=form.cleaned_data["field"],
                thread=thread,
                by=request.user,
                at=timezone.now(),
            )
            desk = ""
            if "desk" in sent:
                desk = f"{reverse('production:desk')}?at={key}#sheet"
            return _redirect_to_comment(request, written, back=desk)
    return _page(request, production_request, form, thread)


@require_http_methods(["GET", "HEAD", "POST"])
def edit_comment(request: AuthenticatedRequest, key: str, number: int) -> HttpResponse:
    production_request = get_object_or_404(Request.objects.visible_to(request.user), key=key)
    comment = _comment(production_request, number)
    if comment.by_id != request.user.pk or comment.withdrawn_at:
        raise PermissionDenied("Only the author can edit a comment.")
    if request.method != "POST":
        form = CommentForm(fields=None, initial={"text": comment.text})
        return _page(request, production_request, form, comment, edited=True)

    form = CommentForm(request.POST, fields=None)
    if form.is_valid():
        with show_errors(request, form):
            text = form.cleaned_data["text"]
            edited = discussion.edit_comment(
                comment=comment, text=text, by=request.user, at=timezone.now()
            )
            return _redirect_to_comment(request, edited)
    return _page(request, production_request, form, comment, edited=True)


@require_POST
def change_comment(request: AuthenticatedRequest, key: str, number: int, verb: str) -> HttpResponse:
    """Resolve or reopen a thread, or withdraw the user's own comment.

    `verb` is `resolve`, `reopen` or `withdraw`.
    """
    production_request = get_object_or_404(Request.objects.visible_to(request.user), key=key)
    comment = _comment(production_request, number)
    by = request.user
    at = timezone.now()
    with show_errors(request):
        if verb == "withdraw":
            discussion.withdraw_comment(comment=comment, by=by, at=at)
        elif verb in {"resolve", "reopen"}:
            discussion.resolve_thread(comment=comment, by=by, at=at, resolved=verb == "resolve")
        else:
            raise Http404
    return redirect(comment)


def _comment(production_request: Request, number: int) -> Comment:
    return get_object_or_404(
        production_request.comments.select_related("request", "by", "thread"), pk=number
    )


def _redirect_to_comment(
    request: AuthenticatedRequest, made: Comment, *, back: str = ""
) -> HttpResponse:
    """Redirect to the comment or to `back`, and warn about mentioned users who are not notified.

    The warning does not reveal whether they exist.
    """
    named = discussion.mentions_in(made.text)
    known = {person.username for person in discussion.people_for(made.request, named)}
    if missed := [name for name in named if name not in known]:
        messages.warning(
            request,
            f"Not notified, because they do not have access to this request: {', '.join(missed)}.",
        )
    return redirect(back or made)


def _page(
    request: AuthenticatedRequest,
    production_request: Request,
    form: Any,
    thread: Comment | None,
    *,
    edited: bool = False,
    is_proposal: bool = False,
) -> HttpResponse:
    context = {
        "object": production_request,
        "form": form,
        "thread": thread,
        "edited": edited,
        "is_proposal": is_proposal,
        "has_started": production_request.state in IN_PRODUCTION,
    }
    return render(
        request, "production/desk/comment.html", context, status=400 if form.errors else 200
    )
