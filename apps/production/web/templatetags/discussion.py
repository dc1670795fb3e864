"""Comments on a field, shown next to it."""

from typing import Any

from django import template

from apps.production.domain.content.model import FIELDS
from apps.production.domain.types.fields import CORE

register = template.Library()


@register.simple_tag(takes_context=True)
def field_talk(context: Any, field: Any, position: int | None = None) -> str:
    """Render the threads about a field of the form. `position` is the position of its stage."""
    own = field.name in (FIELDS if position is None else CORE)
    inner = field.name if own else f"arguments.{field.name}"
    path = inner if position is None else f"stages.{position}.{inner}"
    threads = [thread for thread in context.get("threads", ()) if thread.first.field == path]
    return _shown(context, threads)


@register.simple_tag(takes_context=True)
def whole_stage_talk(context: Any, position: int) -> str:
    """Render the threads about a stage as a whole, which are at none of its fields."""
    path = f"stages.{position}"
    threads = [thread for thread in context.get("threads", ()) if thread.first.field == path]
    return _shown(context, threads)


@register.simple_tag(takes_context=True)
def stage_talk(context: Any, position: int) -> str:
    """Render the threads about a stage and its fields."""
    path = f"stages.{position}"
    threads = []
    for thread in context.get("threads", ()):
        if f"{thread.first.field}.".startswith(f"{path}."):
            threads.append(thread)
    return _shown(context, threads)


def _shown(context: Any, threads: list[Any]) -> str:
    if not threads:
        return ""
    opened = [thread for thread in threads if thread.is_open]
    shown = {
        "page": context["object"].get_absolute_url(),
        "open": opened,
        "count": len(threads),
        "first": (opened or threads)[0].first,
    }
    html: str = context.template.engine.get_template("production/desk/_field_talk.html").render(
        context.new(shown)
    )
    return html
