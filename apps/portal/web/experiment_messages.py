"""The form that sends a message to experiments."""

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
from apps.notifications.domain.experiment_messages import notify_experiments
from apps.portal.pages.experiment_message import MessageDraft, MessageRecipients, draft_message
from apps.submission.web.retries import source_or_404


class _ExperimentsField(forms.ModelMultipleChoiceField):
    """Check boxes of experiments, each with its failed jobs and liaisons."""

    widget = forms.CheckboxSelectMultiple

    def __init__(self, **more: Any) -> None:
        super().__init__(Experiment.objects.none(), **more)
        self.recipients: dict[int, MessageRecipients] = {}

    def offer(self, recipients: list[MessageRecipients]) -> None:
        """Offer these experiments, except those without a liaison."""
        self.recipients = {row.experiment.pk: row for row in recipients if row.liaisons}
        self.queryset = Experiment.objects.filter(pk__in=self.recipients).order_by("key")

    def label_from_instance(self, obj: Any) -> str:
        return self.recipients[obj.pk].in_words


class MessageForm(forms.Form):
    """The experiments that get a message, and its text."""

    experiments = _ExperimentsField(label="To the liaisons of")
    text = forms.CharField(
        label="Message", max_length=4000, widget=forms.Textarea(attrs={"rows": 8})
    )

    def __init__(self, draft: MessageDraft, data: Any = None) -> None:
        super().__init__(data)
        experiments = cast(_ExperimentsField, self.fields["experiments"])
        experiments.offer(draft.recipients)
        self.initial = {"experiments": list(experiments.recipients), "text": draft.text}
        lines = [recipients.own_line for recipients in experiments.recipients.values()]
        if any(lines):
            self.fields[
                "text"
            ].help_text = f"Each experiment gets its own number before it, such as “{lines[0]}”"


@require_http_methods(["GET", "HEAD", "POST"])
def notify(request: AuthenticatedRequest, kind: str, pk: int) -> HttpResponse:
    """Show a prefilled message about a job, group or incident; POST sends it."""
    if not is_opg(request.user):
        raise PermissionDenied
    draft = draft_message(source_or_404(request.user, kind, pk), user=request.user)
    form = MessageForm(draft, request.POST if request.method == "POST" else None)
    if form.is_bound and form.is_valid():
        with show_errors(request, form):
            experiments = list(form.cleaned_data["experiments"])
            texts = {}
            for experiment in experiments:
                texts[experiment] = draft.text_for(experiment, form.cleaned_data["text"])
            notify_experiments(
                subject=draft.subject, texts=texts, by=request.user, at=timezone.now()
            )
            names = ", ".join(experiment.name for experiment in experiments)
            messages.success(request, f"The liaisons of {names} are notified.")
            return redirect(draft.subject)
    status = 400 if form.errors else 200
    context = {"draft": draft, "form": form}
    return render(request, "portal/notify_experiment.html", context, status=status)
