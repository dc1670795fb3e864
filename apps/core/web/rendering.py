"""How form fields are written: as Django's own templates write them, but without a template for each of them.

A page with hundreds of fields or options spends most of its time in those templates.
"""

from collections.abc import Callable, Mapping
from html import escape
from typing import Any

from django.forms.renderers import DjangoTemplates
from django.utils.html import conditional_escape
from django.utils.safestring import mark_safe

_OPTION = "django/forms/widgets/select_option.html"


class FieldRenderer(DjangoTemplates):
    """Django's renderer, which leaves to templates what is not an input, a text area or a select."""

    def render(self, template_name: str, context: dict[str, Any], request: Any = None) -> str:
        write = _WRITERS.get(template_name)
        if write is None or not _is_plain(context["widget"]):
            return super().render(template_name, context, request)
        return mark_safe(write(context["widget"]))  # noqa: S308 – every value in it is escaped


def _is_plain(widget: Mapping[str, Any]) -> bool:
    """Tell whether all options, if it has any, are written by the template of options."""
    groups = widget.get("optgroups", ())
    return all(option["template_name"] == _OPTION for _, options, _ in groups for option in options)


def _input(widget: Mapping[str, Any]) -> str:
    value = "" if widget["value"] is None else f' value="{_escaped(widget["value"])}"'
    kind, name = _escaped(widget["type"]), _escaped(widget["name"])
    return f'<input type="{kind}" name="{name}"{value}{_attributes(widget)}>'


def _textarea(widget: Mapping[str, Any]) -> str:
    text = _escaped(widget["value"]) if widget["value"] else ""
    return f'<textarea name="{_escaped(widget["name"])}"{_attributes(widget)}>\n{text}</textarea>'


def _select(widget: Mapping[str, Any]) -> str:
    parts = [f'<select name="{_escaped(widget["name"])}"{_attributes(widget)}>']
    for group, options, _ in widget["optgroups"]:
        parts += [f'\n  <optgroup label="{_escaped(group)}">'] if group else []
        parts += [
            f'\n  <option value="{_escaped(option["value"])}"{_attributes(option)}>'
            f"{_escaped(option['label'])}</option>\n"
            for option in options
        ]
        parts += ["\n  </optgroup>"] if group else []
    return "".join([*parts, "\n</select>"])


def _escaped(value: Any) -> str:
    """Escape as `conditional_escape` does, which asks of each plain text whether it is a lazy one."""
    return escape(value) if type(value) is str else str(conditional_escape(value))


def _attributes(widget: Mapping[str, Any]) -> str:
    return "".join(
        f" {_escaped(name)}" + ("" if value is True else f'="{_escaped(value)}"')
        for name, value in widget["attrs"].items()
        if value is not False
    )


_INPUTS = ("text", "number", "email", "url", "password", "hidden", "date", "datetime", "time", "checkbox")
_WRITERS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    **{f"django/forms/widgets/{name}.html": _input for name in _INPUTS},
    "django/forms/widgets/textarea.html": _textarea,
    "django/forms/widgets/select.html": _select,
}
