"""The range of dates that users may enter: adding any period to them never overflows."""

from datetime import date

FIRST_YEAR = 2000
LAST_YEAR = 2100
OUT_OF_RANGE = f"Use a date from {FIRST_YEAR} to {LAST_YEAR}."


def in_range(day: date) -> bool:
    """Return whether a date or time is within the years that users may enter."""
    return FIRST_YEAR <= day.year <= LAST_YEAR
