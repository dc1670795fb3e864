"""The approver's desk: requests that wait for the user's signature.

The user decides on them one by one or on several at once.
"""

from collections.abc import Container
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
from apps.production.domain.desk.desk import DeskRow, bulk_approval, read_desk
from apps.production.domain.desk.sheet import Sheet, read_sheet
from apps.production.domain.lifecycle.messages import move_message
from apps.production.domain.lifecycle.moves import MOVE_FUNCTIONS, approve_request
from apps.production.enums import Verb
from apps.production.permissions import may_prioritise
from apps.production.web.forms.moves import ApprovalForm, CommentForm, ReasonForm, ReviewForm
from apps.production.web.lookup import request_or_404

#: The forms for returning or rejecting a request. Approval has its own form.
_REFUSALS = {Verb.REQUEST_CHANGES: ReviewForm, Verb.REJECT: ReasonForm}


@require_safe
def desk(request: AuthenticatedRequest) -> HttpResponse:
    """Show the desk with one request open: the first one, or `?at=NOVA-0219`.

    `?about=deadline` opens a comment on a field, and `?change=stages.0.jobs` the request for
    changes, with a line on each unusual value that is named so.
    """
    return _desk(request, chosen=request.GET.get("at", ""), about=request.GET.get("about"))


@require_POST
def decide(request: AuthenticatedRequest, key: str, verb: str) -> HttpResponse:
    """Approve with a priority, request changes or reject, and open the next request of the desk."""
    if verb not in {Verb.APPROVE, *_REFUSALS}:
        raise Http404
    production_request = request_or_404(request.user, key)
    at = timezone.now()
    if verb == Verb.APPROVE:
        form: ReasonForm = ApprovalForm(
            request.POST, sets_priority=may_prioritise(request.user, production_request)
        )
    else:
        form = _REFUSALS[Verb(verb)](request.POST)

    following = _next_key(request, key)
    if form.is_valid():
        with show_errors(request, form):
            MOVE_FUNCTIONS[Verb(verb)](
                request=production_request, by=request.user, at=at, **form.cleaned_data
            )
            messages.success(request, move_message(production_request, verb, at=at))
            return _back(following)
    if form.errors:
        return _desk(request, chosen=key, forms={verb: form})
    return _back(key)


@require_POST
def approve_several(request: AuthenticatedRequest) -> HttpResponse:
    """Ask for confirmation of the ticked requests; with `confirmed`, approve them.

    Each gets its requested priority. A ticked request is sent as `key:version`. A request that has
    changed since stays on the desk.
    """
    ticked = dict(text.rpartition(":")[::2] for text in request.POST.getlist("ticked"))
    at = timezone.now()
    desk = read_desk(request.user, at=at)
    rows = [row for row in desk.rows if row.request.key in ticked]
    if not rows or desk.queue is None:
        messages.error(request, "Tick the requests to approve.")
        return _back("")
    if "confirmed" not in request.POST:
        bulk = bulk_approval(rows, desk.queue, user=request.user, at=at)
        context = {"bulk": bulk, "ticked": ticked}
        return render(request, "production/desk/several.html", context)
    for row in rows:
        with show_errors(request):
            _approve_as_requested(request, row, ticked[row.request.key], at)
            messages.success(request, move_message(row.request, Verb.APPROVE, at=at))
    return _back("")


def _approve_as_requested(
    request: AuthenticatedRequest, row: DeskRow, version: str, at: Any
) -> None:
    production_request = row.request
    sets = not production_request.priority_class and may_prioritise(
        request.user, production_request
    )
    approve_request(
        request=production_request,
        by=request.user,
        at=at,
        version=int(version)
        if version.isascii() and version.isdigit() and len(version) < 10
        else 0,
        priority_class=production_request.requested_priority if sets else None,
    )


def _next_key(request: AuthenticatedRequest, key: str) -> str:
    """Return the key of the next request on the desk, or of the previous one after the last."""
    keys = [row.request.key for row in read_desk(request.user, at=timezone.now()).rows]
    if key not in keys:
        return ""
    place = keys.index(key)
    return (keys[place + 1 :] or keys[place - 1 : place] or [""])[0]


def _back(key: str) -> HttpResponse:
    return redirect(reverse("production:desk") + (f"?at={key}" if key else ""))


def _desk(
    request: AuthenticatedRequest,
    *,
    chosen: str,
    about: str | None = None,
    forms: dict[str, Any] | None = None,
) -> HttpResponse:
    at = timezone.now()
    desk = read_desk(request.user, at=at)
    row = next((row for row in desk.rows if row.request.key == chosen), None)
    if forms and row is None:
        raise PermissionDenied("This request does not wait for your signature.")
    if row is None and desk.rows:
        row = desk.rows[0]

    context: dict[str, Any] = {
        "desk": desk,
        "row": row,
        "is_chosen": bool(chosen) and row is not None,
        "about": about,
    }
    if row is not None:
        sheet = read_sheet(row, user=request.user, at=at, queue=desk.queue)
        context |= {
            "sheet": sheet,
            "object": sheet.row.request,
            "forms": _forms(sheet, forms or {}, request.GET.getlist("change")),
            "is_changing": "change" in request.GET,
        }
        if about is not None:
            context["comment_form"] = CommentForm(fields=None)
    return render(request, "production/desk/desk.html", context, status=400 if forms else 200)


def _forms(sheet: Sheet, sent: dict[str, Any], changing: Container[str]) -> dict[str, Any]:
    """Return the forms of the three decisions. A submitted form keeps its input and errors.

    `changing` are the paths of the unusual values that changes are requested for.
    """
    production_request = sheet.row.request
    level = {
        "priority_class": production_request.priority_class
        or production_request.requested_priority,
        "priority": production_request.priority,
    }
    version = {"version": production_request.version}
    lines = [value.note for value in sheet.unusual if value.path in changing]
    if sheet.commented:
        lines.append(f"See the comments on: {'; '.join(sheet.commented)}.")

    approve = sent.get(Verb.APPROVE)
    changes = sent.get(Verb.REQUEST_CHANGES)
    reject = sent.get(Verb.REJECT)
    return {
        "approve": approve
        or ApprovalForm(
            initial=version | level, sets_priority=sheet.may_prioritise, auto_id="approve-%s"
        ),
        "changes": changes
        or ReviewForm(initial=version | {"reason": "\n".join(lines)}, auto_id="changes-%s"),
        "reject": reject or ReasonForm(initial=version, auto_id="reject-%s"),
    }
