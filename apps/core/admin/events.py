"""The admin of events, deliveries, heartbeats and sizes of tables."""

from collections.abc import Iterator
from operator import itemgetter
from types import MappingProxyType
from typing import Any

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.contrib.auth import get_user_model
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html

from apps.core.admin.base import EMPTY, ReadOnlyAdmin, register_read_only
from apps.core.admin.lists import PeriodFilter, address_of_record, in_words
from apps.core.domain.event_kinds import kind_in_words, value_in_words, what_was_done
from apps.core.domain.events import select_people
from apps.core.models import Delivery, Event, Heartbeat, TableSize
from apps.core.web.people import name_of


class ActorFilter(admin.SimpleListFilter):
    """Filter events by actor: people, or the portal, which writes most of them.

    The default is people, unless other filters or a search are set.
    """

    title = "who did it"
    parameter_name = "by"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("people", "People"), ("portal", "The portal"), ("all", "All")]

    def __init__(self, request: HttpRequest, *args: Any) -> None:
        super().__init__(request, *args)
        is_specific = request.GET.get("q") or request.GET.get(KindFilter.parameter_name)
        self.default = "all" if is_specific else "people"

    def value(self) -> str:
        return super().value() or self.default

    def choices(self, changelist: ChangeList) -> Iterator[Any]:
        for value, label in self.lookup_choices:
            yield {
                "selected": self.value() == value,
                "query_string": changelist.get_query_string({self.parameter_name: value}),
                "display": label,
            }

    def queryset(self, request: HttpRequest, queryset: QuerySet[Event]) -> QuerySet[Event]:
        if self.value() == "people":
            return queryset.filter(actor__in=select_people())
        if self.value() == "portal":
            return queryset.exclude(actor__in=select_people())
        return queryset


class KindFilter(admin.SimpleListFilter):
    """The action, as text."""

    title = "what was done"
    parameter_name = "kind"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        stored = Event.objects.order_by().values_list("kind", flat=True).distinct()
        labels = [(kind, kind_in_words(kind)) for kind in stored]
        return sorted(labels, key=itemgetter(1))

    def queryset(self, request: HttpRequest, queryset: QuerySet[Event]) -> QuerySet[Event]:
        return queryset.filter(kind=self.value()) if self.value() else queryset


@admin.register(Event)
class EventAdmin(ReadOnlyAdmin):
    """The audit trail."""

    about = "Who did what, when, to what, and why. Events are never changed or deleted."
    document = "events"
    list_display = ("at", "actor", "what", "target", "change", "reason")
    list_title = "Events (audit trail)"
    list_filter = (PeriodFilter, ActorFilter, KindFilter)
    search_fields = ("target_label", "actor")
    search_help_text = "Searches targets, such as NOVA-0219, and user names."
    column_titles = MappingProxyType({"at": "time", "actor": "by"})
    fields = ("at", "by", "what", "target", "change", "reason", "details", "technical_name")
    readonly_fields = ("by", "what", "target", "change", "details", "technical_name")

    def title_of_record(self, record: Event) -> str:
        return f"{record.target_label}: {record.actor} {what_was_done(record)}"

    @admin.display(description="by")
    def by(self, event: Event) -> str:
        """Name a person with the user name, and a part of the portal as it is recorded."""
        user = get_user_model().objects.filter(username=event.actor).first()
        return name_of(user) if user else event.actor

    @admin.display(description="details")
    def details(self, event: Event) -> str:
        return in_words(event.data)

    @admin.display(description="kind of event")
    def technical_name(self, event: Event) -> str:
        """Name the kind as the API, webhooks and the documentation do."""
        return event.kind

    @admin.display(description="what", ordering="kind")
    def what(self, event: Event) -> str:
        return what_was_done(event)

    @admin.display(description="target", ordering="target_label")
    def target(self, event: Event) -> str:
        """Link the record in the back office, if there are pages of its kind."""
        address = address_of_record(event.target_type, event.target_id)
        if not address:
            return event.target_label
        return format_html('<a href="{}">{}</a>', address, event.target_label)

    @admin.display(description="change")
    def change(self, event: Event) -> str:
        """Write the old and new value as the pages do."""
        values = [value_in_words(event, value) for value in (event.old, event.new) if value]
        return " → ".join(values) or "–"


register_read_only(
    Delivery,
    "event subscriber due_at delivered_at attempts last_error",
    filters=["subscriber", ("delivered_at", EMPTY)],
)
# Heartbeats can be deleted: otherwise, a capture that was shut down for good would fail `/readyz`
# forever.
register_read_only(
    Heartbeat,
    "name at detail",
    never=("add", "change"),
    deletes_in_bulk=True,
    column_titles={"at": "last heard"},
    ordering=["name"],
)
register_read_only(TableSize, "day table size_bytes", search="table", ordering=["-day", "table"])
