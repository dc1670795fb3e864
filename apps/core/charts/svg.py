"""Format parts of SVG: numbers, shares of a width, links with titles."""

from collections.abc import Iterable

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString


def short_number(value: float) -> str:
    """Format a number for an axis: `1.5`, `320`, `4k`, `1.2M`."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= 10 * size or (value >= size and unit != "k"):
            return f"{value / size:.1f}".removesuffix(".0") + unit
    return f"{value:,.2f}".rstrip("0").rstrip(".")


def joined(marks: Iterable[str]) -> SafeString:
    return format_html_join("", "{}", ((mark,) for mark in marks))


def share(value: float, top: float) -> str:
    return per_cent(100 * min(max(value, 0), top) / top)


def per_cent(value: float) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".")


def role(drawn: Iterable[str]) -> str:
    """Return the ARIA role of a drawing.

    An image has no parts, so a drawing with links is a group.
    """
    return "group" if any("<a " in element for element in drawn) else "img"


def link(address: str, title: str, mark: SafeString) -> SafeString:
    shown = format_html("<title>{}</title>", title) if title else ""
    if not address:
        return format_html("<g>{}{}</g>", shown, mark) if title else mark
    return format_html('<a href="{}" tabindex="-1">{}{}</a>', address, shown, mark)
