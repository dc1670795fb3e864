"""The filters of a list of failed jobs as chips, each with the list without it."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Model
from django.forms import BoundField, ChoiceField
from django.http import QueryDict
from django.utils import timezone

from apps.core.domain.pagination import with_changes
from apps.core.web.query import AnyOf
from apps.core.web.templatetags.formatting import short_time
from apps.diagnosis.domain.groups.waits import name_of_service

#: The bounds of the period are one chip.
_PERIOD = ("start", "end")


@dataclass(frozen=True)
class Chip:
    """What a filter keeps, in words, and the query of the list without it."""

    text: str
    query: str


def chips_of(filters: AnyOf, query: QueryDict, at: datetime) -> list[Chip]:
    """Return the filters that have a value, the period last; none if a filter is invalid."""
    if not filters.is_valid():
        return []
    values = filters.form.cleaned_data
    chips = []
    for field in filters.form:
        if values.get(field.name) in (None, "") or field.name in _PERIOD:
            continue
        alternatives = filters.others.get(field.name) or [values[field.name]]
        texts = " or ".join(_text_of(field, value) for value in alternatives)
        chips.append(Chip(f"{field.label.lower()} {texts}", _without(query, field.name)))
    if any(values.get(name) for name in _PERIOD):
        text = _period(values.get("start"), values.get("end"), at)
        chips.append(Chip(text, _without(query, *_PERIOD)))
    return chips


def _text_of(field: BoundField, value: Any) -> str:
    if field.name == "group":
        return f"F-{value}"
    if field.name == "service":
        return name_of_service(str(value))
    if isinstance(value, Model):
        return str(value)
    if isinstance(field.field, ChoiceField):
        choices: Any = field.field.choices
        return str(dict(choices).get(value, value)).lower()
    return str(value)


def _period(start: datetime | None, end: datetime | None, at: datetime) -> str:
    since = short_time(timezone.localtime(start)) if start else ""
    until = short_time(timezone.localtime(end)) if end and end < at else "now"
    return f"{since} – {until}" if since else f"until {until}"


def _without(query: QueryDict, *names: str) -> str:
    """Return the query without these filters, of its first page."""
    return with_changes(query, **dict.fromkeys(names, ""))
