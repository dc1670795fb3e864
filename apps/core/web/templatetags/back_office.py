"""Tables of the back office."""

from collections.abc import Iterable, Iterator
from typing import Any

from django import template
from django.contrib import admin
from django.db.models import Model
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe
from django.utils.text import capfirst

register = template.Library()


@register.filter
def list_title(options: Any) -> str:
    """Return the title of the list of a model."""
    return str(_admin_of(options, "list_title") or capfirst(options.verbose_name_plural))


@register.filter
def record_name(options: Any) -> str:
    """Return what one record of a model is called: `cluster`."""
    return str(_admin_of(options, "record_name") or options.verbose_name)


@register.filter
def record_names(options: Any) -> str:
    """Return what several records of a model are called: `clusters`."""
    name = _admin_of(options, "record_name")
    return f"{name}s" if name else str(options.verbose_name_plural)


@register.filter
def see_also(record: Model) -> Any:
    """Return links to what belongs to a record, and is done elsewhere."""
    find_links = getattr(admin.site, "see_also", None)
    return find_links(record) if find_links else []


def _admin_of(options: Any, name: str) -> Any:
    model_admin = admin.site._registry.get(options.model)
    return getattr(model_admin, name, "")


@register.filter
def with_titles(result: Iterable[SafeString], headers: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Give each cell of a row the title of its column, which a phone shows beside its value.

    A phone leaves out cells that are marked as empty.
    """
    for cell, header in zip(result, headers, strict=False):
        title = "" if "action-checkbox" in header.get("class_attrib", "") else header["text"]
        attribute = format_html(' data-title="{}"', capfirst(title))
        if cell.endswith(">–</td>"):
            attribute += mark_safe(" data-empty")
        tag, space, rest = cell.partition(" ")
        yield mark_safe(f"{tag}{attribute}{space}{rest}")  # noqa: S308 (both parts are escaped)
