"""Login, and one's own settings."""

from collections.abc import Mapping
from functools import cache
from zoneinfo import available_timezones

from django import forms
from django.conf import settings


def typed_username(request: object, credentials: Mapping[str, str] | None) -> str | None:
    """Return the name under which failed logins are counted: as much of it as a name may have."""
    name = (credentials or {}).get("username")
    return None if name is None else name[:150]


@cache  # else hundreds of files are looked at for every page
def _zones() -> tuple[tuple[str, str], ...]:
    return tuple((name, name) for name in sorted(available_timezones()))


class SettingsForm(forms.Form):
    time_zone = forms.ChoiceField(required=False, label="Time zone")

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self.fields["time_zone"].choices = [("", f"The portal's own ({settings.TIME_ZONE})"), *_zones()]  # type: ignore[attr-defined]


class TokenForm(forms.Form):
    """A new API token; how long it lives."""

    days = forms.IntegerField(min_value=1, max_value=365, initial=90, label="Valid for days")
