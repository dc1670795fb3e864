"""Time fields of forms and filters."""

from datetime import UTC, datetime
from typing import Any

import django_filters
from django import forms


class MomentField(forms.DateTimeField):
    """A time in the user's zone or with an offset, such as `2026-11-20T09:00:00+01:00`."""

    def to_python(self, value: Any) -> datetime | None:
        """Return it in UTC: PostgreSQL rejects offsets that Python accepts."""
        moment: datetime | None = super().to_python(value)
        try:
            return moment.astimezone(UTC) if moment else None
        except OverflowError:
            raise forms.ValidationError("This is too long ago, or too far in the future.", "overflow") from None


class LocalMomentField(MomentField):
    """A time in the user's zone, as the browser's date and time control sends it."""

    widget = forms.DateTimeInput(attrs={"type": "datetime-local"}, format="%Y-%m-%dT%H:%M")


class MomentFilter(django_filters.DateTimeFilter):
    field_class = MomentField
