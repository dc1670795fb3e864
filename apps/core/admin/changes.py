"""The admin of changes that were made in the back office, also of records that are deleted."""

from contextlib import suppress
from datetime import timedelta
from operator import itemgetter
from types import MappingProxyType
from typing import Any

from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import path
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.text import capfirst

from apps.core.admin.base import ReadOnlyAdmin
from apps.core.admin.joined_changes import name_of_kind, newest_changes
from apps.core.admin.lists import PeriodFilter
from apps.core.admin.record_history import entry_of_log
from apps.core.web.people import name_of

#: Periods of *Who changed what*: days, and their label.
_PERIODS = ((1, "Last 24 hours"), (7, "Last 7 days"), (30, "Last 30 days"), (365, "Last year"))


class ChangePeriod(PeriodFilter):
    time_field = "action_time"


class ActionFilter(admin.ChoicesFieldListFilter):
    """Added, changed or deleted."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.title = "what was done"


class RecordKindFilter(admin.SimpleListFilter):
    """The kind of the changed records, as the lists of the back office name it."""

    title = "kind of record"
    parameter_name = "content_type__id__exact"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        logged = LogEntry.objects.order_by().values("content_type")
        choices = []
        for content_type in ContentType.objects.filter(pk__in=logged):
            choices.append(
                (
                    str(content_type.pk),
                    capfirst(name_of_kind(content_type.model_class(), content_type.name)),
                )
            )
        return sorted(choices, key=itemgetter(1))

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(content_type=self.value()) if self.value() else queryset


@admin.register(LogEntry)
class LogEntryAdmin(ReadOnlyAdmin):
    """Changes with their values; each is also in the history of its record."""

    about = (
        "Who added, changed or deleted a record in the back office, with the values before and "
        "after. With what admins changed on pages of the portal, such as roles, tokens, known "
        "errors and holds:"
    )
    changed_on = ("Who changed what", "admin:admin_logentry_all")
    document = "administration"
    list_title = "Changes in the back office"
    record_name = "change"
    list_display = ("action_time", "user", "kind", "record", "what")
    list_filter = (
        ChangePeriod,
        ("user", admin.RelatedOnlyFieldListFilter),
        ("action_flag", ActionFilter),
        RecordKindFilter,
    )
    search_fields = ("object_repr", "user__username", "change_message")
    list_select_related = ("user", "content_type")
    fields = ("action_time", "by", "kind", "record", "what")
    readonly_fields = ("by", "kind", "record", "what")
    search_help_text = "Searches records, user names and values."
    column_titles = MappingProxyType({"action_time": "time", "user": "by"})
    filter_titles = MappingProxyType({"user": "by"})

    def get_urls(self) -> list[Any]:
        view = self.admin_site.admin_view(self.all_view)
        return [path("all/", view, name="admin_logentry_all"), *super().get_urls()]

    def all_view(self, request: HttpRequest) -> HttpResponse:
        """Show the changes in the back office and on pages of the portal, newest first."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        days = request.GET.get("when", "")
        offered = {str(period) for period, _ in _PERIODS}
        period = int(days) if days in offered else 7
        query = request.GET.get("q", "").replace("\0", "").strip()
        now = timezone.now()
        before = now
        with suppress(ValueError):
            before = parse_datetime(request.GET.get("before", "")) or now
        if timezone.is_naive(before):
            before = timezone.make_aware(before)
        changes, older_than = newest_changes(
            since=now - timedelta(days=period), before=before, query=query
        )
        page = {"changes": changes, "periods": _PERIODS, "days": period, "query": query}
        page["before"] = older_than.isoformat() if older_than else ""
        context = self.admin_site.each_context(request)
        context |= {"title": "Who changed what", "opts": self.opts, "page": page}
        return TemplateResponse(request, "admin/changes/all.html", context)

    def title_of_record(self, record: LogEntry) -> str:
        return f"{record.object_repr}: {record.get_action_flag_display().lower()} by {record.user}"

    @admin.display(description="by")
    def by(self, log_entry: LogEntry) -> str:
        return name_of(log_entry.user)

    @admin.display(description="kind of record", ordering="content_type__model")
    def kind(self, log_entry: LogEntry) -> str:
        content_type = log_entry.content_type
        if content_type is None:
            return "–"
        return name_of_kind(content_type.model_class(), content_type.name)

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
