"""Forms of notification preferences, webhooks and followed requests."""

from itertools import product
from typing import Any, cast

from django import forms

from apps.accounts.models import Experiment, User
from apps.accounts.permissions import is_opg
from apps.core.enums import Group
from apps.core.web.query import number_of
from apps.notifications.domain.mail import mail_is_configured
from apps.notifications.domain.preferences import preferences_of, rules_of
from apps.notifications.domain.webhook_addresses import MAX_LENGTH
from apps.notifications.enums import Channel, When
from apps.notifications.models import Preferences


class PreferencesForm(forms.ModelForm):
    """Quiet hours, and for each group of events when mail and webhook notify of it.

    The fields are named like `mail_turn`.
    """

    digest_hour = forms.TypedChoiceField(
        coerce=int, choices=[(hour, f"{hour:02d}:00") for hour in range(24)], label="Digest at"
    )

    class Meta:
        model = Preferences
        fields = ["digest_hour", "quiet_from", "quiet_until"]
        widgets = dict.fromkeys(fields[1:], forms.TimeInput({"type": "time"}, format="%H:%M"))

    def __init__(self, data: Any = None, *, user: User) -> None:
        rules = rules_of([user])[user.pk]
        self.rules = rules
        self.idle_channels: set[str] = set() if mail_is_configured() else {Channel.MAIL}
        super().__init__(
            data, instance=preferences_of(user), initial={_field(*key): rules[key] for key in rules}
        )
        if Channel.MAIL in self.idle_channels:
            # Only mail has digests: their hour stays.
            del self.fields["digest_hour"]
        for channel, group in rules:
            choices = [
                choice
                for choice in When.choices
                if channel == Channel.MAIL or choice[0] != When.DIGEST
            ]
            label = f"{Group(group).label}, by {channel}"
            widget = forms.Select({"aria-label": label})
            self.fields[_field(channel, group)] = forms.ChoiceField(
                choices=choices,
                label=Channel(channel).label.capitalize(),
                widget=widget,
                required=channel not in self.idle_channels,
            )

    def rows(self) -> list[tuple[str, list[forms.BoundField]]]:
        """Return each group with its fields, one per channel that can notify, as the page shows."""
        channels = [channel for channel in Channel if channel not in self.idle_channels]
        rows = []
        for group in Group:
            fields = [self[_field(channel, group)] for channel in channels]
            rows.append((str(group.label), fields))
        return rows

    def values(self) -> dict[str, Any]:
        """Return the arguments of `save_preferences`."""
        cleaned = self.cleaned_data
        rules = {}
        for channel, group in product(Channel, Group):
            # A channel that is not shown keeps its rules.
            chosen = cleaned[_field(channel, group)] or self.rules[channel, group]
            rules[channel, group] = When(chosen)
        return {
            "digest_hour": cleaned.get("digest_hour", self.instance.digest_hour),
            "quiet_from": cleaned["quiet_from"],
            "quiet_until": cleaned["quiet_until"],
            "rules": rules,
        }


def _field(channel: str, group: str) -> str:
    return f"{Channel(channel).value}_{Group(group).value}"


class WebhookForm(forms.Form):
    url = forms.CharField(label="URL", max_length=MAX_LENGTH, widget=forms.URLInput)
    experiment = forms.ModelChoiceField(
        Experiment.objects.none(),
        required=False,
        empty_label="me: my notifications",
        label="For",
        to_field_name="key",
    )

    def __init__(self, data: Any = None, *, user: User) -> None:
        super().__init__(data)
        if is_opg(user):
            experiment_field = cast("forms.ModelChoiceField[Experiment]", self.fields["experiment"])
            experiment_field.queryset = Experiment.objects.all()
        else:
            del self.fields["experiment"]


class ReadForm(forms.Form):
    """What to mark as read: some notifications, or all up to the newest on the page."""

    until = forms.IntegerField(min_value=0, max_value=2**63 - 1)
    only = forms.CharField(required=False, max_length=5_000)

    def clean_only(self) -> list[int] | None:
        """Read the IDs, separated by commas; None for all."""
        ids = []
        for text in filter(None, self.cleaned_data["only"].split(",")):
            number = number_of(text)
            if number is None:
                raise forms.ValidationError("Use numbers, separated by commas.")
            ids.append(number)
        return ids or None
