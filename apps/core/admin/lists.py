"""Lists of the back office: their columns, search and filters in plain English."""

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from django.contrib import admin
from django.contrib.admin.options import ShowFacets
from django.contrib.admin.views.main import ChangeList
from django.db import models
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse
from django.utils import timezone
from django.utils.text import get_text_list

from apps.core.web.quantity_field import QUANTITIES


def column_title(field: Any) -> str:
    """Return a plain title: `max size` for `max_bytes`, `captured` for `captured_at`."""
    title = str(field.verbose_name)
    if isinstance(field, models.DateTimeField):
        return "time" if title == "at" else title.removesuffix(" at")
    return re.sub("bytes$", "size", re.sub("seconds$", "time", title))


def in_words(value: Any) -> str:
    """Write a value of JSON for a list: `waiting: 0, journal: 15 MB` for an object."""
    if isinstance(value, dict):
        parts = [_part(key, part) for key, part in value.items() if part not in (None, "", [], {})]
        return ", ".join(parts) or "–"
    if isinstance(value, list):
        return ", ".join(in_words(part) for part in value) or "–"
    if isinstance(value, bool):
        return yes_or_no(value)
    return "–" if value in (None, "") else str(value)


def address_of_record(label: str, key: Any) -> str:
    """Return the page of a record in the back office, by the label of its model, such as
    `jobs.job`; empty if its kind has none.
    """
    try:
        return reverse(f"admin:{label.lower().replace('.', '_')}_change", args=[key])
    except NoReverseMatch:
        return ""


def yes_or_no(value: Any) -> str:
    return "yes" if value else "no"


def _part(key: str, value: Any) -> str:
    name, _, unit = key.rpartition("_")
    if unit in QUANTITIES and isinstance(value, int | float):
        return f"{name.replace('_', ' ')}: {QUANTITIES[unit][1](round(value))}"
    return f"{key.replace('_', ' ')}: {in_words(value)}"


#: What a field that is searched holds, where its name does not say so.
_SEARCHED = {
    "actor": "user name",
    "by": "user name",
    "created by": "user name",
    "saved by": "user name",
    "username": "user name",
    "email address": "e-mail address",
    "job id": "job ID",
    "spool id": "job ID of the array",
    "object repr": "record",
    "words": "text",
}


def search_help(model: type[models.Model], paths: Any) -> str:
    """Say what a search looks at: `Searches name, user and whole job ID.`"""
    names: list[str] = []
    for path in paths:
        is_whole = path.startswith("=")
        parts = path.lstrip("=^@").split("__")
        field = model._meta.get_field(parts[0])
        related: Any = field.related_model
        # The list of clusters of a site is a relation without a name of its own.
        name = getattr(field, "verbose_name", "") or related._meta.verbose_name
        name = _SEARCHED.get(str(name).lower(), str(name))
        if len(parts) == 1 and is_whole:
            name = f"whole {name}"
        if name not in names:
            names.append(name)
    return f"Searches {get_text_list(names, 'and')}." if names else ""


class PortalList(ChangeList):
    """A list whose filters are named by the class of the list, and whose times have a zone."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.search_help_text = self.search_help_text or search_help(self.model, self.search_fields)

    def get_filters(self, request: HttpRequest) -> Any:
        titles = getattr(self.model_admin, "filter_titles", {})
        empty_choices = getattr(self.model_admin, "empty_choices", {})
        specs, *others = super().get_filters(request)
        for spec in specs:
            path = getattr(spec, "field_path", "")
            title = titles.get(path)
            spec.title = title or str(spec.title).replace("_", " ").removesuffix(" at")
            if hasattr(spec, "empty_value_display"):
                spec.empty_value_display = empty_choices.get(path, "none")
        return specs, *others

    @property
    def has_times(self) -> bool:
        times = set()
        for field in self.opts.fields:
            if isinstance(field, models.DateTimeField):
                times.add(field.name)
        return bool(times.intersection(self.model_admin.list_display))


class KeysFirstList(PortalList):
    """Uses the paginator even if all rows fit on one page, where Django bypasses it."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        if not self.multi_page:
            self.result_list = self.paginator.page(1).object_list


class EmptyFilter(admin.EmptyFieldListFilter):
    """Whether a field is set: `Lifted: no` for `("lifted_at", EMPTY)`."""

    def choices(self, changelist: ChangeList) -> Iterator[Any]:
        for choice, label in zip(super().choices(changelist), ("All", "No", "Yes"), strict=True):
            yield {**choice, "display": label}


class PeriodFilter(admin.SimpleListFilter):
    """When it was: the last day, week or month, by the field `time_field` of the list."""

    title = "when"
    parameter_name = "when"
    time_field = "at"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("1", "Last 24 hours"), ("7", "Last 7 days"), ("30", "Last 30 days")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Narrow the rows by their keys, which rise with their times and have an index."""
        days = self.value()
        offered = [value for value, _ in self.lookup_choices]
        if days not in offered:
            return queryset
        since = timezone.now() - timedelta(days=int(days))
        rows = queryset.model._default_manager.order_by("-pk")
        before = rows.filter(**{f"{self.time_field}__lt": since}).values_list("pk", flat=True)
        last = before.first()
        return queryset.filter(pk__gt=last) if last else queryset


#: The lists count no rows for each choice of a filter: of millions, that would take minutes.
NO_COUNTS = ShowFacets.NEVER
#: Filter by whether a field is set: `("resolved_at", EMPTY)`.
EMPTY = EmptyFilter
