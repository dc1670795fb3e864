"""The marks of a service's days: ninety for each service of a board, so made here and not by a loop of a template."""

from django import template
from django.urls import reverse
from django.utils.html import format_html_join
from django.utils.safestring import SafeString

from apps.core.templatetags.look import sign
from apps.services.selectors import Row

register = template.Library()


@register.simple_tag
def day_marks(row: Row) -> SafeString:
    """A mark for each day, which leads to its incidents."""
    page = reverse("services:service-detail", args=[row.service.slug])
    return format_html_join(
        "",
        '<a class="{}" href="{}?day={}" title="{}" tabindex="-1"></a>',
        ((sign(day.state), page, day.date.isoformat(), day.words) for day in row.days),
    )
