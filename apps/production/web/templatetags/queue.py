"""Ranks, scores and shares on pages."""

from django import template
from django.utils.safestring import SafeString

from apps.core.charts import Part, share_bar
from apps.core.models import Event
from apps.production.domain.estimates.figures import Size
from apps.production.models import Request

register = template.Library()


@register.filter
def changed_place(event: Event) -> str:
    """Return the verb of an event of the queue, to be followed by the request."""
    if event.kind == "request.priority_set":
        return "set"
    if event.data.get("by_score"):
        return "reset the position of"
    return "moved"


@register.filter
def to_level(event: Event) -> str:
    """Return the priority that an event set; empty for a move."""
    if event.kind != "request.priority_set":
        return ""
    if event.old:
        return f" to {event.old} → {event.new}"
    return f" to {event.new}"


@register.filter
def request_url(key: str) -> str:
    """Return the URL of the request with this key."""
    return Request(key=key).get_absolute_url()


@register.filter
def share_change(event: Event) -> str:
    """Return the old and new share of production of an event."""
    return f"{share(event.data['share_old'])} → {share(event.data['share_new'])}"


@register.filter
def points(number: float) -> str:
    """Format points of a score: `+18.0`, `−11.4`."""
    if not round(number, 1):
        return "0.0"
    return f"{number + 0.0:+.1f}".replace("-", "−")


@register.filter
def share(part: float | None) -> str:
    if part is None:
        return "–"
    return f"{100 * part:.1f}".removesuffix(".0") + " %"


@register.simple_tag
def share_with_target(used: float | None, due: float) -> SafeString:
    """Render the share that an experiment used as a bar with a line at the share it is due."""
    parts = [Part("accent", used or 0.0, f"{share(used)} used")]
    target = Part("target", due, f"{share(due)} due")
    sentence = f"{parts[0].title}, {target.title}"
    return share_bar(parts, sentence=sentence, whole=1, target=target)


@register.filter
def whole_hours(seconds: float) -> str:
    return f"{seconds / 3600:,.0f}"


@register.filter
def core_hours(size: Size | None) -> str:
    """Format a size in core-hours: `300`, `≤ 300` by time limits, `–` if it is unknown."""
    if size is None:
        return "–"
    hours = whole_hours(size.core_seconds)
    return f"≤ {hours}" if size.by_limit else hours
