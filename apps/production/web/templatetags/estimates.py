"""Uncertain figures: the likely value with its range."""

from collections.abc import Callable
from datetime import date

from django import template

from apps.core.web.templatetags.look import duration, size
from apps.production.domain.estimates.figures import Range

register = template.Library()
HOUR = 3600


def _round(number: float) -> str:
    """Write a number with the two or three significant digits that an estimate has."""
    if number >= 100:
        return f"{round(number, 2 - len(str(int(number)))):,.0f}"
    return f"{number:.2g}" if number < 10 else f"{number:.0f}"


@register.filter
def span_dates(days: tuple[date, date, date] | None) -> str:
    """Write the likely day, with the range in brackets."""
    if days is None:
        return "–"
    early, likely, late = (f"{day:%-d %b %Y}" for day in days)
    return f"{likely} ({early} to {late})"


_UNITS: dict[str, Callable[[float], str]] = {
    "core-hours": lambda seconds: _round(seconds / HOUR),
    "days": lambda days: f"{_round(days)} days",
    "time": duration,
    "size": size,
}


@register.filter
def jobs_at_once(jobs: float) -> str:
    """How many jobs run at once, as a whole number of at least one."""
    return f"{max(1, round(jobs)):,} job{'' if round(jobs) <= 1 else 's'}"


@register.filter
def span(figure: Range | None, unit: str) -> str:
    """Write the likely value, with the range in brackets: `3.1 TB (2.8 TB to 3.6 TB)`."""
    if figure is None:
        return "–"
    low, mid, high = map(_UNITS[unit], (figure.low, figure.mid, figure.high))
    return mid if low == high else f"{mid} ({low} to {high})"
