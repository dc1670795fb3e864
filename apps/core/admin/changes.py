"""The admin of changes that were made in the back office, also of records that are deleted."""

from types import MappingProxyType
from typing import Any

from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from apps.core.admin.base import ReadOnlyAdmin
from apps.core.admin.history import entry_of_log
from apps.core.admin.lists import PeriodFilter


class ChangePeriod(PeriodFilter):
    time_field = "action_time"


class ActionFilter(admin.ChoicesFieldListFilter):
    """Added, changed or deleted."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.title = "what was done"


@admin.register(LogEntry)
class LogEntryAdmin(ReadOnlyAdmin):
    """Changes with their values; each is also in the history of its record."""

    about = (
        "Who added, changed or deleted a record in the back office, with the values before and "
        "after. The audit trail (Events) also has what was done by pages, commands and the API."
    )
    document = "administration"
    list_title = "Changes in the back office"
    record_name = "change"
    list_display = ("action_time", "user", "kind", "record", "what")
    list_filter = (
        ChangePeriod,
        ("user", admin.RelatedOnlyFieldListFilter),
        ("action_flag", ActionFilter),
        ("content_type", admin.RelatedOnlyFieldListFilter),
    )
    search_fields = ("object_repr", "user__username", "change_message")
    list_select_related = ("user", "content_type")
    fields = ("action_time", "user", "content_type", "object_repr", "what")
    readonly_fields = ("what",)
    search_help_text = "Searches records, user names and values."
    column_titles = MappingProxyType({"action_time": "time", "user": "by"})
    filter_titles = MappingProxyType({"user": "by", "content_type": "kind of record"})

    @admin.display(description="kind of record", ordering="content_type__model")
    def kind(self, log_entry: LogEntry) -> str:
        return str(log_entry.content_type.name) if log_entry.content_type else "–"

    @admin.display(description="record", ordering="object_repr")
    def record(self, log_entry: LogEntry) -> str:
        address = None if log_entry.is_deletion() else log_entry.get_admin_url()
        if address is None:
            return log_entry.object_repr
        return format_html('<a href="{}">{}</a>', address, log_entry.object_repr)

    @admin.display(description="what")
    def what(self, log_entry: LogEntry) -> SafeString:
        entry = entry_of_log(log_entry)
        changes = []
        for change in entry.changes:
            values = f"{change.old} → {change.new}" if change.old else change.new
            changes.append((change.field, "; ".join(change.lines) or values))
        lines = format_html_join("", "<br><b>{}</b> {}", changes)
        return format_html("{}{}", entry.what, lines)
