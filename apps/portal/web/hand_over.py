"""The hand-over between shifts: what changed since the last note, and the notes."""

from datetime import timedelta

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from apps.accounts.web.http_request import AuthenticatedRequest
from apps.core.web.errors import show_errors
from apps.portal.pages.home_changes import changes_for_hand_over
from apps.statusboard.domain.incidents.incidents import open_incidents
from apps.statusboard.domain.maintenance.hand_over_notes import (
    LONGEST_NOTE,
    hand_over_notes,
    write_hand_over_note,
)
from apps.statusboard.permissions import may_run_board

PAGE_SIZE = 20
#: Changes since the last note that the page shows at most.
MOST_CHANGES = 20
#: Without an earlier note, the changes of this period are shown: two shifts.
FIRST_PERIOD = timedelta(hours=16)


class NoteForm(forms.Form):
    text = forms.CharField(
        label="Note",
        max_length=LONGEST_NOTE,
        widget=forms.Textarea(attrs={"rows": 6}),
        help_text="What is open, what you tried, whom you wait for. It cannot be changed later.",
    )


@require_http_methods(["GET", "HEAD", "POST"])
def hand_over(request: AuthenticatedRequest) -> HttpResponse:
    """Show the hand-over notes to the OPG, and write one."""
    if not may_run_board(request.user):
        raise PermissionDenied
    at = timezone.now()
    form = NoteForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        with show_errors(request, form):
            write_hand_over_note(text=form.cleaned_data["text"], by=request.user, at=at)
            messages.success(
                request, "Note saved. Shifters and approvers see it on their home page."
            )
            return redirect("portal:hand-over")
    notes = hand_over_notes()
    last = notes.first()
    since = last.at if last else at - FIRST_PERIOD
    context = {
        "form": form,
        "last": last,
        "changes": changes_for_hand_over(since=since, user=request.user, at=at, most=MOST_CHANGES),
        "incidents": open_incidents(),
        "page": Paginator(notes, PAGE_SIZE).get_page(request.GET.get("page")),
    }
    status = 400 if form.errors else 200
    return render(request, "portal/hand_over/hand_over.html", context, status=status)
