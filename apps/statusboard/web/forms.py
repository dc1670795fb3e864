"""What people fill in: incidents, windows, announcements, rules. Times are in the reader's zone."""

from typing import Any

from django import forms

from apps.accounts.models import Experiment
from apps.core.web.moments import MomentField
from apps.statusboard.enums import INCIDENT_STATES
from apps.statusboard.models import Service, UnmappedAlert

#: The choice of a rule that leads its alerts nowhere; no slug looks like it.
NO_SERVICE = ":none"

_STATES = [(state.value, state.label) for state in INCIDENT_STATES]


class Moment(MomentField):
    """A date and time, as the browser's own control gives it."""

    widget = forms.DateTimeInput(attrs={"type": "datetime-local"}, format="%Y-%m-%dT%H:%M")


class IncidentForm(forms.Form):
    service = forms.ModelChoiceField(Service.objects.all(), to_field_name="slug")
    state = forms.ChoiceField(choices=_STATES, label="It is")
    started_at = Moment(required=False, label="Since", help_text="Empty: now.")
    title = forms.CharField(max_length=200, help_text="What is seen, in one line.")
    text = forms.CharField(required=False, widget=forms.Textarea(attrs={"rows": 3}), label="More")
    url = forms.URLField(
        required=False, max_length=2000, assume_scheme="https", label="Link", help_text="A ticket or log."
    )


class UpdateForm(forms.Form):
    """A change to an open incident."""

    state = forms.ChoiceField(choices=_STATES, label="It is")
    title = forms.CharField(max_length=200)
    text = forms.CharField(required=False, widget=forms.Textarea(attrs={"rows": 3}), label="More")
    url = forms.URLField(required=False, max_length=2000, assume_scheme="https", label="Link")
    reason = forms.CharField(max_length=2000, label="What is new")


class CloseForm(forms.Form):
    reason = forms.CharField(
        max_length=2000, widget=forms.Textarea(attrs={"rows": 2}), label="How do you know that it is over?"
    )
    ended_at = Moment(required=False, label="Over since", help_text="Empty: now.")


class WindowForm(forms.Form):
    title = forms.CharField(max_length=200, help_text="What is done.")
    services = forms.ModelMultipleChoiceField(Service.objects.all(), to_field_name="slug")
    starts_at = Moment(label="From")
    ends_at = Moment(label="Until")
    text = forms.CharField(
        required=False, widget=forms.Textarea(attrs={"rows": 3}), label="What it means", help_text="For jobs, then."
    )


class ReasonForm(forms.Form):
    reason = forms.CharField(max_length=2000)


class AnnouncementForm(forms.Form):
    title = forms.CharField(max_length=200)
    body = forms.CharField(
        required=False, widget=forms.Textarea(attrs={"rows": 4}), label="Text", help_text="Plain text."
    )
    starts_at = Moment(required=False, label="From", help_text="Empty: now.")
    ends_at = Moment(required=False, label="Until", help_text="Empty: until it is withdrawn.")
    do_not_submit = forms.BooleanField(required=False, label="Do not submit", help_text="Shown on top of every page.")
    experiments = forms.ModelMultipleChoiceField(
        Experiment.objects.all(), required=False, to_field_name="key", help_text="None: everybody sees it."
    )
    services = forms.ModelMultipleChoiceField(Service.objects.all(), required=False, to_field_name="slug")


class RuleForm(forms.Form):
    """Where the alerts that carry some of one unmapped alert's labels belong; `services` are the choices, read once."""

    labels = forms.MultipleChoiceField(help_text="All that are chosen must be equal.")
    service = forms.ChoiceField()
    state = forms.ChoiceField(choices=[("", "By its severity"), *_STATES], required=False, label="Then it is")

    def __init__(self, data: Any = None, *, alert: UnmappedAlert, services: list[tuple[str, str]]) -> None:
        super().__init__(data, auto_id=f"id_{alert.pk}_%s")
        fields: dict[str, Any] = self.fields
        fields["labels"].choices = [(name, f"{name}={value}"[:100]) for name, value in sorted(alert.labels.items())]
        fields["labels"].initial = [name for name in ("alertname", "job") if name in alert.labels]
        fields["service"].choices = [("", "Choose"), *services, (NO_SERVICE, "No service: leave them out")]
