"""The form field of an argument, and the tick boxes of services."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from django import forms

from apps.production.domain.content.known import COLUMNS
from apps.production.domain.types.arguments import Argument
from apps.production.domain.types.fields import CORE, REQUEST


def make_form_field(argument: Argument, services: Iterable[tuple[str, str]] = ()) -> forms.Field:
    """Return the form field of an argument. `read_plain` parses and checks its text."""
    form_field = _plain_field(argument, services)
    # A choice of the portal's own has a value already, and the reason depends on it.
    form_field.is_optional = not (  # type: ignore[attr-defined]
        argument.required or argument.name in {"requested_priority", "priority_reason"}
    )
    return form_field


def _plain_field(argument: Argument, services: Iterable[tuple[str, str]]) -> forms.Field:
    common: dict[str, Any] = {
        "required": False,
        "label": argument.title,
        "help_text": argument.help,
    }
    own = argument is REQUEST.get(argument.name) or argument.name in CORE
    match argument.kind.widget:
        case "services":
            unknown = {"invalid_choice": "Service “%(value)s” does not exist."}
            return forms.MultipleChoiceField(
                choices=list(services), error_messages=unknown, **common
            )
        case "choice":
            none = [] if own else [("", "–")]
            return forms.ChoiceField(
                choices=[*none, *((choice, choice) for choice in argument.choices)], **common
            )
        case "yes_no":
            return forms.ChoiceField(choices=[("", "–"), ("yes", "Yes"), ("no", "No")], **common)
        case "lines":
            widget: forms.Widget = forms.Textarea(attrs={"rows": 3})
        case "date":
            widget = forms.DateInput(attrs={"type": "date"})
        case _:
            widget = forms.TextInput()
    if kind := known_kind(argument):
        widget.attrs["list"] = f"known-{kind}"
    if kind or not (own and argument.kind.is_text):
        widget.attrs["autocomplete"] = "off"
    return forms.CharField(widget=widget, **common)


def known_kind(argument: Argument) -> str:
    """Return the kind of earlier values that a field suggests, or an empty text."""
    if argument.type == "dataset":
        return "dataset"
    return argument.name if argument.name in COLUMNS else ""


class FieldPlace(NamedTuple):
    """Where the form shows a field: the anchor of a link to it, and its label."""

    anchor: str
    label: str


class ServiceTick(NamedTuple):
    """The tick box of a service."""

    slug: str
    name: str
    is_ticked: bool


class TickedForm(forms.Form):
    """A form that may have services to tick."""

    def ticks(self) -> list[ServiceTick]:
        chosen = set(self["services"].value() or [])
        choices = self.fields["services"].choices  # type: ignore[attr-defined]
        return [ServiceTick(slug, name, slug in chosen) for slug, name in choices]
