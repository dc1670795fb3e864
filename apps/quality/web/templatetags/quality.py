"""How results and thresholds are written on pages."""

from typing import Any

from django import template

from apps.quality.checks.registry import checks
from apps.quality.enums import Effect, Unknown

register = template.Library()


@register.filter
def figure(value: Any) -> str:
    """A number with few digits: `12,345`, `0.05`, `1.2e-09`; a text as it is, nothing as “none”."""
    if value is None:
        return "none"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if float(value).is_integer() and abs(value) < 10**15:
        return f"{value:,.0f}"
    return f"{value:.4g}"


@register.filter
def measured(value: float | None, unit: str) -> str:
    """A value or threshold of a result: a part as `4.09 %`, anything else as a number with few digits."""
    if value is None:
        return "–"
    if unit != "part":
        return figure(value)
    percent = 100 * value
    return f"{percent:.3g} %" if abs(percent) < 999.5 else f"{percent:,.0f} %"


@register.filter
def cut_words(name: str) -> str:
    """`most_missing` as `most missing`."""
    return name.replace("_", " ")


@register.filter
def check_title(name: str) -> str:
    """The title of a check; its name where it is there no more."""
    known = checks().get(name)
    return known.title if known else name


@register.filter
def effect_words(value: str) -> str:
    """What comes of a failure, in words."""
    return Effect(value).label if value in Effect.values else value


@register.filter
def unknown_words(value: str) -> str:
    """What comes of a check that cannot tell, in words."""
    return Unknown(value).label if value in Unknown.values else value
