"""Forms of the account: settings and tokens."""

from functools import cache
from zoneinfo import available_timezones

from django import forms
from django.conf import settings

from apps.accounts.enums import TokenScope


# Reading the list opens hundreds of files.
@cache
def _zones() -> tuple[tuple[str, str], ...]:
    return tuple((name, name) for name in sorted(available_timezones()))


class SettingsForm(forms.Form):
    time_zone = forms.ChoiceField(required=False, label="Time zone")

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        portal_default = ("", f"Portal default ({settings.TIME_ZONE})")
        choices = [portal_default, *_zones()]
        self.fields["time_zone"].choices = choices  # type: ignore[attr-defined]


class TokenForm(forms.Form):
    name = forms.CharField(
        max_length=64, label="Name", widget=forms.TextInput(attrs={"placeholder": "nightly script"})
    )
    scope = forms.TypedChoiceField(
        choices=TokenScope, coerce=TokenScope, initial=TokenScope.READ, label="Scope"
    )
    days = forms.IntegerField(min_value=1, max_value=365, initial=90, label="Valid for days")
    calls_per_hour = forms.IntegerField(
        min_value=1,
        max_value=1_000_000,
        required=False,
        label="Calls per hour",
        widget=forms.NumberInput(attrs={"placeholder": "no limit of its own"}),
    )
