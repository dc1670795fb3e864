"""The marks of a service's days: ninety for each service of a board, so made here and not by a loop of a template."""

from functools import lru_cache

from django import template
from django.urls import reverse
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe

from apps.core.web.templatetags.look import sign
from apps.statusboard.domain.board import Row

register = template.Library()


@register.simple_tag
def day_marks(row: Row) -> SafeString:
    """A mark for each day, which leads to its incidents."""
    page = escape(reverse("statusboard:service-detail", args=[row.service.slug]))
    marks = (
        f'<a class="{sign(day.state)}" href="{page}?day={day.date.isoformat()}"'
        f' title="{_title(day.words)}" tabindex="-1"></a>'
        for day in row.days
    )
    return mark_safe("".join(marks))  # noqa: S308 – signs and dates are the portal's own, the rest is escaped


_title = lru_cache(maxsize=4_000)(escape)
