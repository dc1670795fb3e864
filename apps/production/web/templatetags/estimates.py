"""Uncertain figures: the likely value with its range."""

from collections.abc import Callable, Sequence

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.core.charts import bar_with_mark, spread
from apps.core.domain.quantities import count_noun
from apps.core.web.templatetags.formatting import duration, size
from apps.production.domain.estimates.figures import Range
from apps.production.domain.forecast import Days
from apps.production.web.templatetags.requests import brief_count

register = template.Library()
HOUR = 3600


def _round(number: float) -> str:
    """Format a number with two or three significant digits, the precision of an estimate."""
    if number >= 100:
        return f"{round(number, 2 - len(str(int(number)))):,.0f}"
    return f"{number:.2g}" if number < 10 else f"{number:.0f}"


def _days(days: float) -> str:
    """Format a time in days: of up to two days, in hours."""
    return f"{_round(days)} days" if days > 2 else f"{_round(24 * days)} h"


@register.filter
def span_dates(days: Days | None) -> str:
    """Format the likely day, with the range in brackets."""
    if days is None:
        return "–"
    return f"{days.likely:%-d %b %Y} ({days.early:%-d %b %Y} to {days.late:%-d %b %Y})"


_UNITS: dict[str, Callable[[float], str]] = {
    "core-hours": lambda seconds: _round(seconds / HOUR),
    "count": lambda count: brief_count(round(count)),
    "days": _days,
    "time": duration,
    "size": size,
}


@register.filter
def jobs_at_once(jobs: float) -> str:
    """Format how many jobs run at once, as a whole number of at least one."""
    return count_noun(max(1, round(jobs)), "job")


@register.simple_tag
def used_before(quantiles: Sequence[float], unit: str, value: float | None) -> SafeString:
    """Render what past jobs used, as a bar and as text.

    `value` is the requested amount, in the unit of the figures.
    """
    write = _UNITS[unit]
    if not quantiles:
        return SafeString('<small class="soft">no past jobs</small>')
    least, _, mid, _, most = map(write, quantiles)
    sentence = f"80 % of past jobs used {least} to {most}, half of them less than {mid}"
    is_short = value is not None and value < quantiles[-1]
    short = ""
    if is_short:
        short = SafeString(
            ' <span class="caution" title="more than requested">'
            '<span aria-hidden="true">▲</span>'
            '<span class="visually-hidden">more than requested</span></span>'
        )
    bar = spread(quantiles, value=value, sentence=sentence)
    return format_html("{}<small>half under {}, 90 % under {}{}</small>", bar, mid, most, short)


@register.filter
def amount(value: float | None, unit: str) -> str:
    """Format an exact figure in the unit of an estimate."""
    return "–" if value is None else _UNITS[unit](value)


@register.filter
def deviation(figure: Range) -> str:
    """Return how far the range reaches from the likely value: `± 15 %`; empty if it is exact."""
    farthest = max(figure.high - figure.mid, figure.mid - figure.low)
    if not figure.mid or not farthest:
        return ""
    return f"± {100 * farthest / figure.mid:.0f} %"


@register.simple_tag
def usual_range(most: float, value: float, unit: str) -> SafeString:
    """Render a bar up to what 90 % of past jobs used, and a mark at the requested amount."""
    write = _UNITS[unit]
    sentence = f"90 % of past jobs used at most {write(most)}; requested {write(value)}"
    return bar_with_mark(most, value=value, sentence=sentence)


@register.filter
def span(figure: Range | None, unit: str) -> str:
    """Format the likely value with the range in brackets: `3.1 TB (2.8 TB to 3.6 TB)`."""
    if figure is None:
        return "–"
    low, mid, high = map(_UNITS[unit], (figure.low, figure.mid, figure.high))
    return mid if low == high else f"{mid} ({low} to {high})"
