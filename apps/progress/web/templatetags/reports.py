"""How a figure of a report is written: as a link to the jobs behind it."""

from collections.abc import Mapping
from typing import Any

from django import template
from django.template import Context
from django.utils.html import format_html

register = template.Library()


@register.simple_tag(takes_context=True)
def behind(context: Context, row: Mapping[str, Any], name: str, figure: float, shown: str) -> str:
    """Write a figure of a row as a link to its jobs; that of a frozen report says that these are as of now."""
    if not figure:
        return shown
    link = '<a href="{}" title="Jobs as of now">{}</a>' if context.get("digest") else '<a href="{}">{}</a>'
    return format_html(link, row["links"][name], shown)
