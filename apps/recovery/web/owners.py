"""Pages of jobs that a rule would retry and that only their owners can submit."""

from django import forms
from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_safe

from apps.accounts.web.http_request import AuthenticatedRequest
from apps.core.web.errors import show_errors
from apps.production.domain.reasons import MAX_REASON
from apps.recovery.domain.decisions.owner_questions import (
    leave_to_fail,
    note_submitted,
    owner_bundle,
    owner_questions_for,
    read_owner_question,
)
from apps.recovery.models import Decision

SHOWN_JOBS = 100


class OwnerAnswerForm(forms.Form):
    """Why the jobs stay failed, or what to note."""

    reason = forms.CharField(
        max_length=MAX_REASON,
        required=False,
        label="Comment, required to leave them failed",
        widget=forms.Textarea(attrs={"rows": 2}),
    )


@require_http_methods(["GET", "HEAD", "POST"])
def owner(request: AuthenticatedRequest, pk: int) -> HttpResponse:
    """Show a question to an owner with its jobs and bundle; POST answers it."""
    decision = _decision(request, pk)
    if not owner_questions_for(request.user).filter(pk=pk).exists():
        messages.info(request, "This question is answered.")
        return redirect("recovery:questions")
    now = timezone.now()
    form = OwnerAnswerForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        with show_errors(request, form):
            reason = form.cleaned_data["reason"]
            if request.POST.get("do") == "leave":
                jobs = leave_to_fail(decision=decision, by=request.user, at=now, reason=reason)
            else:
                jobs = note_submitted(decision=decision, by=request.user, at=now, reason=reason)
            messages.success(request, f"Answered for {jobs:,} job{'s' * (jobs != 1)}.")
            return redirect("recovery:questions")
    question = read_owner_question(decision=decision, user=request.user, at=now)
    context = {
        "question": question,
        "shown": question.jobs[:SHOWN_JOBS],
        "form": form,
    }
    status = 400 if form.errors else 200
    return render(request, "recovery/owner.html", context, status=status)


@require_safe
def owner_bundle_file(request: AuthenticatedRequest, pk: int) -> HttpResponse:
    """Return the retries of a question's jobs as a tar for their owner."""
    decision = _decision(request, pk)
    with show_errors(request):
        content = owner_bundle(decision=decision, by=request.user, at=timezone.now())
        headers = {"Content-Disposition": f'attachment; filename="retries-{pk}.tar"'}
        return HttpResponse(content, content_type="application/x-tar", headers=headers)
    return redirect("recovery:owner", pk)


def _decision(request: AuthenticatedRequest, pk: int) -> Decision:
    decisions = Decision.objects.visible_to(request.user).filter(job__verdict__isnull=False)
    return get_object_or_404(
        decisions.select_related("job__cluster", "job__verdict__group", "rule"), pk=pk
    )
