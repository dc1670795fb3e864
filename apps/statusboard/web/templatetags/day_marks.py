"""Marks of a service's last 90 days, built in Python because a template loop is too slow for a whole board."""

from functools import lru_cache

from django import template
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe

from apps.core.web.templatetags.look import sign
from apps.statusboard.domain.board import Row

register = template.Library()


@register.simple_tag
def day_marks(row: Row) -> SafeString:
    """Render one mark per day, linked to its incidents."""
    page = escape(row.service.get_absolute_url())
    marks = (
        f'<a class="{sign(day.state)}" href="{page}?day={day.date.isoformat()}"'
        f' title="{_title(day.summary)}" tabindex="-1"></a>'
        for day in row.days
    )
    return mark_safe("".join(marks))  # noqa: S308 – signs and dates are the portal's own, the rest is escaped


_title = lru_cache(maxsize=4_000)(escape)
