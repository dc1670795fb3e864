"""Events, deliveries and heartbeats, to look at only."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from apps.core.models import Delivery, Event, Heartbeat


class ReadOnlyAdmin(admin.ModelAdmin):
    """Rows that only services write."""

    show_full_result_count = False

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


@admin.register(Event)
class EventAdmin(ReadOnlyAdmin):
    list_display = ["at", "kind", "target_label", "actor", "old", "new", "reason"]
    list_filter = ["kind"]
    search_fields = ["target_label", "actor"]
    ordering = ["-id"]


@admin.register(Delivery)
class DeliveryAdmin(ReadOnlyAdmin):
    list_display = ["event", "subscriber", "due_at", "delivered_at", "attempts", "last_error"]
    list_filter = ["subscriber", ("delivered_at", admin.EmptyFieldListFilter)]
    list_select_related = ["event"]
    ordering = ["-id"]


@admin.register(Heartbeat)
class HeartbeatAdmin(ReadOnlyAdmin):
    """May be deleted: the heart of a capture that is stopped for good would keep `/readyz` from being well."""

    list_display = ["name", "at", "detail"]

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return admin.ModelAdmin.has_delete_permission(self, request, obj)
