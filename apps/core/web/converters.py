"""Path converters of the portal's addresses. A module with addresses that use them imports this."""

from datetime import date

from django.urls import register_converter
from django.urls.converters import StringConverter


class AnyTextConverter(StringConverter):
    """Any text: a scheduler may report a host or user with a slash or a line break."""

    regex = r"[\s\S]+"


class DayConverter:
    """A day of this century, such as 2026-11-23."""

    regex = r"\d{4}-\d{2}-\d{2}"

    def to_python(self, value: str) -> date:
        day = date.fromisoformat(value)
        if not 2000 <= day.year <= 2100:
            raise ValueError(f"{value} is not a day of this century")
        return day

    def to_url(self, value: date) -> str:
        return value.isoformat()


register_converter(AnyTextConverter, "text")
register_converter(DayConverter, "day")
