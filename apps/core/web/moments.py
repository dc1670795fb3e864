"""Times from outside, in forms and filters."""

from datetime import UTC, datetime
from typing import Any

import django_filters
from django import forms


class MomentField(forms.DateTimeField):
    """A time in the reader's zone, or with a zone of its own, such as `2026-11-20T09:00:00+01:00`."""

    def to_python(self, value: Any) -> datetime | None:
        """Return it in UTC: PostgreSQL knows no zones as far from it as Python does."""
        moment: datetime | None = super().to_python(value)
        try:
            return moment.astimezone(UTC) if moment else None
        except OverflowError:
            raise forms.ValidationError("This is too long ago, or too far in the future.", "overflow") from None


class LocalMomentField(MomentField):
    """A time in the reader's zone, as the browser's own control gives it."""

    widget = forms.DateTimeInput(attrs={"type": "datetime-local"}, format="%Y-%m-%dT%H:%M")


class MomentFilter(django_filters.DateTimeFilter):
    field_class = MomentField
