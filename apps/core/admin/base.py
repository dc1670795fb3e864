"""Base classes of the admin."""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.utils import unquote
from django.contrib.admin.views.main import ChangeList
from django.db import IntegrityError, models
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe
from django.utils.text import capfirst

from apps.core.admin.deletion import (
    names_that_go_with_a_record,
    reasons_against_deletion,
    without_links,
)
from apps.core.admin.lists import (
    EMPTY,
    NO_COUNTS,
    KeysFirstList,
    PortalList,
    column_title,
    in_words,
    yes_or_no,
)
from apps.core.admin.record_history import history_of, with_values
from apps.core.admin.responses import PlainResponses
from apps.core.errors import InvalidFields
from apps.core.web import documentation
from apps.core.web.form_errors import name_duplicates, name_field_in_errors
from apps.core.web.pagination import KeysFirst
from apps.core.web.quantity_field import QUANTITIES, QuantityField
from apps.core.web.text_fields import CheckBoxes, JsonText, with_links


def _as_it_is(value: Any) -> Any:
    return value


def offer_only_to_add(widget: Any) -> None:
    """Leave *Add* of the icons beside a choice of records: the others open what was chosen."""
    for name in ("can_change_related", "can_delete_related", "can_view_related"):
        if hasattr(widget, name):
            setattr(widget, name, False)


class PortalAdmin(PlainResponses):
    """Defaults for every model in the admin."""

    formfield_overrides = {
        models.URLField: {"assume_scheme": "https"},
        models.JSONField: {"form_class": JsonText},
    }
    #: What the rows are for, and the page of `docs/` about them, above the list and the form.
    #: Without `about`, the sentence is the model's.
    about = ""
    document = ""
    #: The title of the list, if the plural name of the model says too little.
    list_title = ""
    #: Actions of the list that the page of a record offers, too.
    record_actions: tuple[str, ...] = ()
    #: Plain labels and help texts of fields whose model says too little.
    labels: Mapping[str, str] = {}
    help_texts: Mapping[str, str] = {}
    #: Actions that are never allowed: "add", "change", "delete".
    never: tuple[str, ...] = ()
    #: The page of the portal that changes the rows: its name, and the name of its URL.
    changed_on: tuple[str, str] | tuple[()] = ()
    #: What is deleted with a row, although it is not deleted otherwise.
    deleted_too: tuple[type[models.Model], ...] = ()
    #: Whether the rows only say how far the portal is with a record, and are deleted with it.
    goes_with_its_record = False
    #: Whether every other record prevents a deletion, also one that would only lose the reference.
    is_kept_if_used = False
    #: What an admin does instead with a row that cannot be deleted, as a sentence.
    instead_of_deleting = ""
    #: Plain titles of columns whose fields have names of the code.
    column_titles: Mapping[str, str] = {}
    #: Plain titles of filters by field, and of their choice for rows without a value.
    filter_titles: Mapping[str, str] = {}
    empty_choices: Mapping[str, str] = {}
    #: Whether several rows can be deleted at once: those that are deleted often, such as roles.
    deletes_in_bulk = False
    show_facets = NO_COUNTS

    @property
    def purpose(self) -> str:
        """Say what the rows are for, in a sentence."""
        text = self.model.__doc__ or ""
        is_written_by_django = text.startswith(f"{self.model.__name__}(")
        if self.about or is_written_by_django:
            return self.about
        return text.partition("\n\n")[0].replace("`", "").strip()

    def get_list_select_related(self, request: HttpRequest) -> Any:
        """Join the relations among the columns, unless the class lists its own."""
        related = set()
        for field in self.opts.fields:
            if field.many_to_one or field.one_to_one:
                related.add(field.name)
        return self.list_select_related or [name for name in self.list_display if name in related]

    def get_list_display(self, request: HttpRequest) -> Any:
        """Show quantities with their units, as the form does, and JSON as text."""
        return [self._column(name) for name in self.list_display]

    def _column(self, name: Any) -> Any:
        write = self._writer_of(name)
        if write is None:
            return name
        field = self.opts.get_field(name)
        title = self.column_titles.get(name) or column_title(field)
        is_unset = (None, "")

        @admin.display(description=title, ordering=name)
        def column(row: Any) -> Any:
            value = getattr(row, name)
            return "–" if value in is_unset else write(value)

        column.__name__ = str(name)  # the class of its cells
        return column

    def _writer_of(self, name: Any) -> Callable[[Any], Any] | None:
        """Return what writes the values of a column; None for one that Django writes."""
        suffix = str(name).rpartition("_")[2]
        if suffix in QUANTITIES:
            return QUANTITIES[suffix][1]
        if name in self._names_of(models.JSONField):
            return in_words
        if name in self._names_of(models.BooleanField):
            return yes_or_no
        is_plain = name in self.column_titles or name in self._names_of(models.DateTimeField)
        return _as_it_is if is_plain else None

    def _names_of(self, kind: type[models.Field]) -> set[str]:
        return {field.name for field in self.opts.fields if isinstance(field, kind)}

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return PortalList

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        """Leave out the deletion of many rows at once, unless it is usual."""
        actions = super().get_actions(request)
        deletion = actions.pop("delete_selected", None)
        if deletion and self.deletes_in_bulk:
            delete, name, _ = deletion
            actions[name] = (delete, name, "Delete…")
        return actions

    def formfield_for_dbfield(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        suffix = db_field.name.rpartition("_")[2]
        if suffix in QUANTITIES and isinstance(db_field, models.IntegerField):
            label = capfirst(column_title(db_field))
            return db_field.formfield(form_class=QuantityField, suffix=suffix, label=label)
        return super().formfield_for_dbfield(db_field, request, **kwargs)

    def formfield_for_manytomany(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        """Offer check boxes, which need neither the Ctrl key nor JavaScript."""
        if db_field.name not in self.get_autocomplete_fields(request):
            kwargs.setdefault("widget", CheckBoxes)
        return super().formfield_for_manytomany(db_field, request, **kwargs)

    def get_form(self, *args: Any, **kwargs: Any) -> Any:
        """Link the pages of the documentation that help texts name; name fields in errors."""
        form = super().get_form(*args, **kwargs)
        for name, field in form.base_fields.items():
            field.label = self.labels.get(name, field.label)
            help_text = self.help_texts.get(name, field.help_text)
            if isinstance(field, forms.SplitDateTimeField):
                zone = timezone.localtime().strftime("%Z")
                help_text = f"{help_text} Times in {zone}.".strip()
            field.help_text = with_links(str(help_text), documentation.titles())
            offer_only_to_add(field.widget)
            name_field_in_errors(field, name, self.name_of_record)
        name_duplicates(form, self.name_of_record)
        return form

    def construct_change_message(
        self, request: HttpRequest, form: Any, formsets: Any, add: bool = False
    ) -> list[dict[str, Any]]:
        """Store the old and new values with a change, for the history."""
        message = super().construct_change_message(request, form, formsets, add)
        return with_values(message, form, formsets)

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: Any = None
    ) -> HttpResponse:
        """Show who changed what, from which value to which."""
        record = self.get_object(request, unquote(object_id))
        context = dict(extra_context or {})
        if record is not None:
            with_portal = "portal" in request.GET
            context["history"] = history_of(record, with_portal=with_portal)
            context["title"] = f"History of {record}"
        return super().history_view(request, object_id, context)

    def title_of_record(self, record: Any) -> str:
        """Return the heading of the page of a record."""
        return str(record)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return "add" not in self.never and super().has_add_permission(request)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return "change" not in self.never and super().has_change_permission(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return "delete" not in self.never and super().has_delete_permission(request, obj)

    def get_deleted_objects(
        self, objs: Any, request: HttpRequest
    ) -> tuple[list[str], dict[str, int], set[str], list[str]]:
        """Say which records prevent a deletion, without reading all of them as Django would."""
        reasons = reasons_against_deletion(
            objs,
            self.admin_site,
            deleted_too=self.deleted_too,
            any_use=self.is_kept_if_used,
            instead=self.instead_of_deleting,
        )
        if reasons:
            return [], {}, set(), reasons
        deleted, counts, needed, protected = super().get_deleted_objects(objs, request)
        deleted, counts = without_links(deleted, counts, self.admin_site)
        allowed = {str(model._meta.verbose_name) for model in self.deleted_too}
        allowed |= names_that_go_with_a_record(self.admin_site)
        return deleted, counts, {name for name in needed if str(name) not in allowed}, protected

    def render_change_form(
        self,
        request: HttpRequest,
        context: dict[str, Any],
        add: bool = False,
        change: bool = False,
        form_url: str = "",
        obj: Any = None,
    ) -> HttpResponse:
        """Name the page of a record after it, and offer the actions of the list."""
        if obj is not None:
            offered = self.get_actions(request)
            actions = [(name, offered[name][2]) for name in self.record_actions if name in offered]
            title = self.title_of_record(obj)
            context |= {"title": title, "subtitle": None, "record_actions": actions}
        elif self.record_name and context["title"] == f"Add {self.opts.verbose_name}":
            context["title"] = f"Add {self.record_name}"
        return super().render_change_form(request, context, add, change, form_url, obj)

    def changeform_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Report conflicts with a simultaneous change by another user; nothing is saved then."""
        try:
            return super().changeform_view(request, *args, **kwargs)
        except IntegrityError:
            messages.error(
                request, "Nothing was saved: another user saved the same at the same time."
            )
        except InvalidFields as error:
            messages.error(request, " ".join(chain.from_iterable(error.problems.values())))
        return redirect(request.path)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Delete rows one by one, so that `delete_model` is called for each of them."""
        for obj in queryset:
            self.delete_model(request, obj)


class LongListAdmin(PortalAdmin):
    """The admin of a large table."""

    show_full_result_count = False
    list_per_page = 50
    #: The last row that can be reached by paging; None for no limit.
    last_row: int | None = None

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return KeysFirstList

    def get_paginator(
        self, request: HttpRequest, queryset: QuerySet[Any], per_page: int, *args: Any
    ) -> KeysFirst:
        rows = self.get_queryset(request)
        rows.query.select_related = queryset.query.select_related
        return KeysFirst(queryset, per_page, rows=rows, last=self.last_row)

    @admin.display(description=mark_safe('<input type="checkbox" id="action-toggle">'))
    def action_checkbox(self, obj: Any) -> SafeString:
        """Return Django's checkbox without rendering a template for each row.

        The template took a third of the time of a list.
        """
        box = (
            '<input type="checkbox" name="{}" value="{}" class="action-select" aria-label="Select '
            '{} for an action">'
        )
        return format_html(box, ACTION_CHECKBOX_NAME, obj.pk, obj)


class ReadOnlyAdmin(LongListAdmin):
    """The admin of rows that only domain functions write."""

    never: tuple[str, ...] = ("add", "change", "delete")

    def get_form(self, *args: Any, **kwargs: Any) -> Any:
        """Name the fields of a record as the columns of the list."""
        labels = {}
        for field in self.opts.fields:
            title = self.column_titles.get(field.name) or column_title(field)
            labels[field.name] = self.labels.get(field.name) or capfirst(title)
        return super().get_form(*args, **{"labels": labels, **kwargs})


def register_read_only(
    model: type[models.Model],
    columns: str,
    *,
    search: str = "",
    filters: Sequence[Any] = (),
    **options: Any,
) -> None:
    """Register a model that only domain functions write.

    `columns` and `search` are field names separated by blanks.
    """
    options |= {
        "list_display": columns.split(),
        "search_fields": search.split(),
        "list_filter": filters,
    }
    admin.site.register(model, ReadOnlyAdmin, **options)


__all__ = ["EMPTY", "LongListAdmin", "PortalAdmin", "ReadOnlyAdmin", "register_read_only"]
