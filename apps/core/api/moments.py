"""Time and date fields of API input."""

from datetime import date, datetime
from typing import Any

from rest_framework import serializers

from apps.core.domain.dates import OUT_OF_RANGE, in_range


class MomentField(serializers.DateTimeField):
    """A time within the years that users may enter."""

    default_error_messages = {"out_of_range": OUT_OF_RANGE}

    def to_internal_value(self, value: Any) -> datetime:
        try:
            moment: datetime = super().to_internal_value(value)
        except OverflowError:
            # The first or last representable day, in a zone where it is another day.
            self.fail("out_of_range")
        if not in_range(moment):
            self.fail("out_of_range")
        return moment


class DayField(serializers.DateField):
    """A date within the years that users may enter."""

    default_error_messages = {"out_of_range": OUT_OF_RANGE}

    def to_internal_value(self, value: Any) -> date:
        day: date = super().to_internal_value(value)
        if not in_range(day):
            self.fail("out_of_range")
        return day
