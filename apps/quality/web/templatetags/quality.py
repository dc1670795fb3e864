"""Formats of results and thresholds on pages."""

from typing import Any

from django import template

from apps.quality.checks.registry import checks
from apps.quality.enums import Effect, Unknown

register = template.Library()


@register.filter
def figure(value: Any) -> str:
    """Format a number with few digits: `12,345`, `0.05`, `1.2e-09`; None as “none”."""
    if value is None:
        return "none"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if float(value).is_integer() and abs(value) < 10**15:
        return f"{value:,.0f}"
    return f"{value:.4g}"


@register.filter
def measured(value: float | None, unit: str) -> str:
    """Format a value or threshold: a fraction as `4.09 %`, any other number with few digits."""
    if value is None:
        return "–"
    if unit != "part":
        return figure(value)
    percent = 100 * value
    if abs(percent) < 999.5:
        return f"{percent:.3g} %"
    return f"{percent:,.0f} %"


@register.filter
def cut_words(name: str) -> str:
    """Return `most_missing` as `most missing`."""
    return name.replace("_", " ")


@register.filter
def check_title(name: str) -> str:
    """Return the title of a check, or its name if it no longer exists."""
    known = checks().get(name)
    return known.title if known else name


@register.filter
def label_of(value: str, kind: str) -> str:
    """Return the label of an effect, by its kind: `effect` of a failure, or `unknown`."""
    choices = Effect if kind == "effect" else Unknown
    return str(choices(value).label) if value in choices.values else value
