"""What is said about a field, shown beside it."""

from typing import Any

from django import template

from apps.production.content import FIELDS
from apps.production.workflows.declaration import CORE

register = template.Library()


@register.inclusion_tag("production/_field_talk.html", takes_context=True)
def field_talk(context: Any, field: Any, position: int | None = None) -> dict[str, Any]:
    """Return what `_field_talk.html` shows of a field of the form; `position` is that of its stage."""
    own = field.name in (FIELDS if position is None else CORE)
    inner = field.name if own else f"arguments.{field.name}"
    path = inner if position is None else f"stages.{position}.{inner}"
    threads = [thread for thread in context.get("threads", ()) if thread.first.field == path]
    return _shown(context["object"], threads)


@register.inclusion_tag("production/_field_talk.html", takes_context=True)
def stage_talk(context: Any, position: int) -> dict[str, Any]:
    """Return what `_field_talk.html` shows of a stage, with all its fields."""
    path = f"stages.{position}"
    threads = [thread for thread in context.get("threads", ()) if f"{thread.first.field}.".startswith(f"{path}.")]
    return _shown(context["object"], threads)


def _shown(request: Any, threads: list[Any]) -> dict[str, Any]:
    opened = [thread for thread in threads if thread.is_open]
    shown = (opened or threads)[:1]
    first = shown[0].first if shown else None
    return {"key": getattr(request, "key", ""), "open": len(opened), "count": len(threads), "first": first}
