"""Forms of the status board. Times are in the user's zone."""

from typing import Any, cast

from django import forms
from django.core.validators import MinValueValidator
from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.accounts.models import Experiment
from apps.core.web.moments import DayField, LocalMomentField
from apps.core.web.quantity_field import QuantityField
from apps.core.web.text_fields import CheckBoxes
from apps.statusboard.domain.incidents.incidents import open_incidents
from apps.statusboard.enums import INCIDENT_STATES, Repeat, WindowEffect
from apps.statusboard.feeds.generic import FIELDS
from apps.statusboard.feeds.registry import FEEDS
from apps.statusboard.models import Incident, Service, UnmappedAlert

#: The choice "ignore" of a rule; not a valid slug.
NO_SERVICE = ":none"

_STATES = [(state.value, state.label) for state in INCIDENT_STATES]


class IncidentForm(forms.Form):
    service = forms.ModelChoiceField(Service.objects.all(), to_field_name="slug")
    state = forms.ChoiceField(choices=_STATES, label="State")
    started_at = LocalMomentField(required=False, label="Started", help_text="Leave empty for now.")
    title = forms.CharField(max_length=200, help_text="One line that describes the symptom.")
    text = forms.CharField(
        required=False, widget=forms.Textarea(attrs={"rows": 3}), label="Description"
    )
    url = forms.URLField(
        required=False,
        max_length=2000,
        assume_scheme="https",
        label="Link",
        help_text="For example a ticket or a log.",
    )


class NewIncidentForm(IncidentForm):
    """A new incident. If its service has an open one, that one is to be updated instead."""

    another = forms.BooleanField(required=False, label="Report another anyway")

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        state = cast(forms.ChoiceField, self.fields["state"])
        state.choices = [("", "Choose a state"), *_STATES]
        self.open_incident = self._open_incident()
        if self.open_incident is None:
            del self.fields["another"]
        else:
            self.fields["another"].help_text = _link_to_open(self.open_incident)

    def _open_incident(self) -> Incident | None:
        """Return an open incident of the service that was chosen."""
        slug = self.data.get("service") if self.is_bound else self.initial.get("service")
        if not slug:
            return None
        return open_incidents().filter(service__slug=str(slug).replace("\0", "")).first()

    def clean(self) -> dict[str, Any]:
        fields = super().clean() or self.cleaned_data
        is_deliberate = fields.pop("another", False)
        if self.open_incident and not is_deliberate:
            self.add_error("another", "Add an update to the open incident, or tick this.")
        return fields


def _link_to_open(incident: Incident) -> SafeString:
    return format_html(
        '{} already has an open incident: add an update to <a href="{}">{}</a>.',
        incident.service.name,
        incident.get_absolute_url(),
        incident.title,
    )


class UpdateForm(IncidentForm):
    """An update of an open incident; its states before `since` are kept."""

    service: Any = None
    started_at: Any = None
    since = LocalMomentField(
        required=False, label="In this state since", help_text="Leave empty for now."
    )
    reason = forms.CharField(max_length=2000, label="What changed")


class CloseForm(forms.Form):
    reason = forms.CharField(
        max_length=2000, widget=forms.Textarea(attrs={"rows": 2}), label="Reason"
    )
    ended_at = LocalMomentField(required=False, label="Ended", help_text="Leave empty for now.")


class NoForm(forms.Form):
    """A form without fields, for a button."""


class PostForm(forms.Form):
    text = forms.CharField(
        widget=forms.Textarea(attrs={"rows": 2}),
        label="Update",
        help_text="Shown to all users, and on the public status page if there is one.",
    )


class LogForm(forms.Form):
    origin = forms.CharField(max_length=200, required=False, label="Host or file")
    text = forms.CharField(
        widget=forms.Textarea(attrs={"rows": 6, "class": "mono"}),
        label="Lines",
        strip=False,
        help_text="As logged.",
    )


class PostMortemForm(forms.Form):
    text = forms.CharField(
        required=False,
        widget=forms.Textarea(attrs={"rows": 8}),
        label="Post-mortem",
        help_text="What happened, why, and what prevents it.",
    )


class CorrectionForm(forms.Form):
    started_at = LocalMomentField(label="Started")
    ended_at = LocalMomentField(required=False, label="Ended", help_text="Empty while it is open.")
    reason = forms.CharField(
        max_length=2000, help_text="Jobs are evaluated again with the new times."
    )


class DivideForm(forms.Form):
    ended_at = LocalMomentField(label="First outage ended")
    resumed_at = LocalMomentField(
        required=False,
        label="Second one started",
        help_text="Empty if it followed at once. Merging the two takes it back.",
    )
    reason = forms.CharField(max_length=2000, help_text="How you know. Jobs are evaluated again.")


class ReopenForm(forms.Form):
    reason = forms.CharField(max_length=2000, help_text="Why it is not over.")


class MergeForm(forms.Form):
    """Merges an incident into another incident of the same service."""

    into = forms.ModelChoiceField(
        Incident.objects.none(), label="Into", help_text="It becomes an alert of this one."
    )

    def __init__(self, *args: Any, incident: Incident, **more: Any) -> None:
        super().__init__(*args, **more)
        others = Incident.objects.filter(service=incident.service_id, merged_into=None).exclude(
            pk=incident.pk
        )
        fields: dict[str, Any] = self.fields
        fields["into"].queryset = others.order_by("-started_at")
        fields["into"].label_from_instance = lambda other: f"{other.pk}: {other.title}"


class WindowForm(forms.Form):
    title = forms.CharField(max_length=200, help_text="One line that describes the work.")
    services = forms.ModelMultipleChoiceField(
        Service.objects.all(), to_field_name="slug", widget=CheckBoxes
    )
    starts_at = LocalMomentField(label="Start")
    ends_at = LocalMomentField(label="End")
    effect = forms.ChoiceField(
        choices=WindowEffect.choices,
        initial=WindowEffect.DOWN,
        required=False,
        help_text="At risk: announced, not maintenance.",
    )
    text = forms.CharField(
        required=False,
        widget=forms.Textarea(attrs={"rows": 3}),
        label="Impact",
        help_text=(
            "What it means for jobs. Shown to all users, and in the public calendar if there is "
            "one."
        ),
    )
    repeat = forms.ChoiceField(choices=[("", "Once"), *Repeat.choices], required=False)
    last_day = DayField(
        required=False,
        widget=forms.DateInput(attrs={"type": "date"}),
        label="Last day",
        help_text="Of repeated work: included.",
    )


class CancelForm(forms.Form):
    reason = forms.CharField(max_length=2000)
    following = forms.BooleanField(required=False)


class ReasonForm(forms.Form):
    reason = forms.CharField(max_length=2000)


class AnnouncementForm(forms.Form):
    title = forms.CharField(max_length=200)
    body = forms.CharField(
        required=False,
        widget=forms.Textarea(attrs={"rows": 4}),
        label="Text",
        help_text="Plain text.",
    )
    starts_at = LocalMomentField(required=False, label="Start", help_text="Leave empty for now.")
    ends_at = LocalMomentField(
        required=False, label="End", help_text="Leave empty to show it until it is withdrawn."
    )
    pinned = forms.BooleanField(
        required=False, label="Pin", help_text="Shown first, also to those who have read it."
    )
    do_not_submit = forms.BooleanField(
        required=False, label="Advise against submitting", help_text="Shows a banner on every page."
    )
    experiments = forms.ModelMultipleChoiceField(
        Experiment.objects.all(),
        required=False,
        to_field_name="key",
        widget=CheckBoxes,
        help_text="None: it is shown to everybody.",
    )
    services = forms.ModelMultipleChoiceField(
        Service.objects.all(), required=False, to_field_name="slug", widget=CheckBoxes
    )


class PinForm(forms.Form):
    pinned = forms.BooleanField(required=False)


_A_MINUTE = MinValueValidator(60, "Enter 1 min or more.")


class SourceForm(forms.Form):
    slug = forms.SlugField(
        label="Name in links",
        max_length=64,
        help_text="Part of the address that it posts to, such as farm-prometheus.",
        error_messages={"invalid": "Use only letters, digits, hyphens and underscores."},
    )
    name = forms.CharField(max_length=100, required=False)
    feed = forms.ChoiceField(
        label="Format", choices=lambda: [(name, name) for name in FEEDS.names()]
    )
    heartbeat_timeout_seconds = QuantityField(
        suffix="seconds",
        label="Silent after",
        validators=[_A_MINUTE],
        initial=900,
        help_text="Time without a message after which its services are unknown.",
    )
    lease_seconds = QuantityField(
        suffix="seconds",
        label="Alerts end after",
        validators=[_A_MINUTE],
        initial=3600,
        help_text="Time after which an open alert is stale unless it is repeated.",
    )
    pull_url = forms.URLField(
        label="Fetch from",
        required=False,
        max_length=500,
        assume_scheme="https",
        help_text=(
            "Address of its API or document, asked every minute: closes what it no longer reports."
        ),
    )


class PayloadForm(forms.Form):
    """A payload to try."""

    payload = forms.CharField(
        label="Payload",
        max_length=512_000,
        strip=False,
        widget=forms.Textarea(attrs={"rows": 8, "class": "mono", "spellcheck": "false"}),
        help_text="As the source sends it, for example copied from its log.",
        error_messages={"required": "Paste a payload to try."},
    )


class MappingForm(forms.Form):
    """The mapping of a source's JSON payloads, with one field per name."""

    def __init__(self, data: Any = None, *, mapping: dict[str, str]) -> None:
        super().__init__(data, initial=mapping)
        fields: dict[str, Any] = self.fields
        for name, about in FIELDS.items():
            is_needed = name in ("key", "state")
            label = name.replace("_", " ").capitalize()
            fields[name] = forms.CharField(
                max_length=300, required=is_needed, label=label, help_text=about
            )

    def mapping(self) -> dict[str, str]:
        return {name: value for name, value in self.cleaned_data.items() if value}


class RuleForm(forms.Form):
    """Maps alerts that share labels with an unmapped alert to a service.

    `services` are the choices of the field `service`.
    """

    labels = forms.MultipleChoiceField(
        widget=CheckBoxes,
        help_text="All ticked labels must match.",
        error_messages={"required": "Tick one label or more."},
    )
    service = forms.ChoiceField(error_messages={"required": "Choose a service."})
    state = forms.ChoiceField(
        choices=[("", "By severity"), *_STATES], required=False, label="State"
    )

    def __init__(
        self, data: Any = None, *, alert: UnmappedAlert, services: list[tuple[str, str]]
    ) -> None:
        super().__init__(data, auto_id=f"id_{alert.pk}_%s")
        fields: dict[str, Any] = self.fields
        labels = []
        for name, value in sorted(alert.labels.items()):
            labels.append((name, f"{name}={value}"[:100]))
        # Set when it is complete: the check boxes copy the list.
        fields["labels"].choices = labels
        fields["labels"].initial = [name for name in ("alertname", "job") if name in alert.labels]
        fields["service"].choices = [
            ("", "Choose…"),
            *services,
            (NO_SERVICE, "Ignore these alerts"),
        ]
