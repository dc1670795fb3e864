"""Time and date fields of forms and filters."""

from datetime import UTC, date, datetime
from typing import Any

import django_filters
from django import forms

from apps.core.domain.dates import OUT_OF_RANGE, in_range


class MomentField(forms.DateTimeField):
    """A time in the user's zone or with an offset, such as `2026-11-20T09:00:00+01:00`."""

    def to_python(self, value: Any) -> datetime | None:
        """Return the time in UTC: PostgreSQL rejects offsets that Python accepts."""
        moment: datetime | None = super().to_python(value)
        if moment and not in_range(moment):
            raise forms.ValidationError(OUT_OF_RANGE, "out_of_range")
        return moment.astimezone(UTC) if moment else None


class LocalMomentField(MomentField):
    """A time in the user's zone, as the browser's date and time control sends it."""

    widget = forms.DateTimeInput(attrs={"type": "datetime-local"}, format="%Y-%m-%dT%H:%M")


class DayField(forms.DateField):
    """A date within the years that users may enter."""

    def to_python(self, value: Any) -> date | None:
        day: date | None = super().to_python(value)
        if day and not in_range(day):
            raise forms.ValidationError(OUT_OF_RANGE, "out_of_range")
        return day


class DayFilter(django_filters.DateFilter):
    field_class = DayField


class MomentFilter(django_filters.DateTimeFilter):
    field_class = MomentField
