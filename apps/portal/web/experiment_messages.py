"""The form that sends a message to an experiment."""

from typing import Any, cast

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from apps.accounts.models import Experiment
from apps.accounts.permissions import is_opg
from apps.accounts.web.http_request import AuthenticatedRequest
from apps.core.web.errors import show_errors
from apps.notifications.domain.experiment_messages import notify_experiment
from apps.portal.pages.experiment_message import MessageDraft, draft_message
from apps.submission.web.retries import source_or_404


class MessageForm(forms.Form):
    """The experiment and the text of a message."""

    experiment = forms.ModelChoiceField(
        queryset=Experiment.objects.none(), empty_label=None, label="To the liaisons of"
    )
    text = forms.CharField(
        label="Message", max_length=4000, widget=forms.Textarea(attrs={"rows": 8})
    )

    def __init__(self, draft: MessageDraft, data: Any = None) -> None:
        super().__init__(data, initial={"text": draft.text})
        pks = [recipients.experiment.pk for recipients in draft.recipients]
        experiment = cast(forms.ModelChoiceField, self.fields["experiment"])
        experiment.queryset = Experiment.objects.filter(pk__in=pks)


@require_http_methods(["GET", "HEAD", "POST"])
def notify(request: AuthenticatedRequest, kind: str, pk: int) -> HttpResponse:
    """Show a prefilled message about a job, group or incident; POST sends it."""
    if not is_opg(request.user):
        raise PermissionDenied
    draft = draft_message(source_or_404(request.user, kind, pk), user=request.user)
    form = MessageForm(draft, request.POST if request.method == "POST" else None)
    if form.is_bound and form.is_valid():
        with show_errors(request, form):
            notify_experiment(
                subject=draft.subject, by=request.user, at=timezone.now(), **form.cleaned_data
            )
            experiment = form.cleaned_data["experiment"]
            messages.success(request, f"The liaisons of {experiment.name} are notified.")
            return redirect(draft.subject)
    status = 400 if form.errors else 200
    context = {"draft": draft, "form": form}
    return render(request, "portal/notify_experiment.html", context, status=status)
