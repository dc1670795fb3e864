"""Scripts on pages."""

from collections.abc import Sequence

from django import template
from django.utils.safestring import SafeString

register = template.Library()


@register.filter
def highlighted(lines: Sequence[str]) -> list[SafeString]:
    """Return the lines of a script as HTML."""
    # Imported here because Pygments takes memory, which most processes can save.
    from apps.archive.web.highlight import highlight

    return highlight(lines)
