"""Events, deliveries and heartbeats, to look at only."""

from functools import cached_property
from typing import Any

from django.contrib import admin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.views.main import ChangeList
from django.core.paginator import Page, Paginator
from django.db import models
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe

from apps.core.models import Delivery, Event, Heartbeat


class KeysFirst(Paginator):
    """Finds the keys of a page and reads only its `rows`, with all that is joined; what is searched for is found once.

    Django would join, and put in order, all rows before the page too, and look for what is wanted once to count it.
    """

    #: So many that are found are counted by their keys.
    most = 1_000

    def __init__(
        self, found: QuerySet[Any], per_page: int, *, rows: QuerySet[Any], last: int | None = None, **more: Any
    ) -> None:
        """Page through `found`, with `last` no further than to that row: more are not even counted."""
        super().__init__(found, per_page, **more)
        self.keys, self.rows, self.last = found.values_list("pk", flat=True), rows, last

    @cached_property
    def all_keys(self) -> list[Any] | None:
        """Return all keys where something is looked for; None if nothing is, or there are many."""
        keys = list(self.keys[: self.most + 1]) if self.keys.query.where else None
        return keys if keys is not None and len(keys) <= self.most else None

    @cached_property
    def count(self) -> int:
        if self.all_keys is not None:
            return len(self.all_keys)
        return self.keys.order_by()[: self.last].count()

    def page(self, number: int | str) -> Page[Any]:
        number = self.validate_number(number)
        part = slice((number - 1) * self.per_page, min(number * self.per_page, self.count))
        keys = list(self.keys[part] if self.all_keys is None else self.all_keys[part])
        rows = self.rows.in_bulk(keys)
        return Page([rows[key] for key in keys if key in rows], int(number), self)


class KeysFirstList(ChangeList):
    """A list whose only page is read like any other."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        if not self.multi_page:
            self.result_list = self.paginator.page(1).object_list


class PortalAdmin(admin.ModelAdmin):
    """What rows in the back office have in common."""

    #: What nobody may do here: of "add", "change", "delete".
    never: tuple[str, ...] = ()

    def get_list_select_related(self, request: HttpRequest) -> Any:
        """Join the rows that columns name, unless more is needed to write these."""
        related = {field.name for field in self.opts.fields if field.many_to_one or field.one_to_one}
        return self.list_select_related or [name for name in self.list_display if name in related]

    def has_add_permission(self, request: HttpRequest) -> bool:
        return "add" not in self.never and super().has_add_permission(request)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return "change" not in self.never and super().has_change_permission(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return "delete" not in self.never and super().has_delete_permission(request, obj)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Delete each by itself, as one alone."""
        for obj in queryset:
            self.delete_model(request, obj)


class LongListAdmin(PortalAdmin):
    """Rows of which there are many: their list is fast all the same."""

    show_full_result_count = False
    list_per_page = 50
    #: Of a table of millions, people page through no more than so many rows; None for all.
    last_row: int | None = None
    formfield_overrides = {models.URLField: {"assume_scheme": "https"}}

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return KeysFirstList

    def get_paginator(self, request: HttpRequest, queryset: QuerySet[Any], per_page: int, *args: Any) -> KeysFirst:
        rows = self.get_queryset(request)
        rows.query.select_related = queryset.query.select_related
        return KeysFirst(queryset, per_page, rows=rows, last=self.last_row)

    @admin.display(description=mark_safe('<input type="checkbox" id="action-toggle">'))
    def action_checkbox(self, obj: Any) -> SafeString:
        """Write what Django writes, without a template for each row: that was a third of the time of a list."""
        box = '<input type="checkbox" name="{}" value="{}" class="action-select" aria-label="Select {} for an action">'
        return format_html(box, ACTION_CHECKBOX_NAME, obj.pk, obj)


class ReadOnlyAdmin(LongListAdmin):
    """Rows that only services write."""

    never: tuple[str, ...] = ("add", "change", "delete")


@admin.register(Event)
class EventAdmin(ReadOnlyAdmin):
    list_display = ["at", "kind", "target_label", "actor", "old", "new", "reason"]
    list_filter = ["kind"]
    search_fields = ["target_label", "actor"]


@admin.register(Delivery)
class DeliveryAdmin(ReadOnlyAdmin):
    list_display = ["event", "subscriber", "due_at", "delivered_at", "attempts", "last_error"]
    list_filter = ["subscriber", ("delivered_at", admin.EmptyFieldListFilter)]


@admin.register(Heartbeat)
class HeartbeatAdmin(ReadOnlyAdmin):
    """May be deleted: the heart of a capture that is stopped for good would keep `/readyz` from being well."""

    never = ("add", "change")
    list_display = ["name", "at", "detail"]
