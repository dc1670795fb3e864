"""The admin of the status board: services, sources and rules can be edited, the rest is read-only.

Incidents, maintenance windows and announcements are edited on pages, which record events.
"""

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone

from apps.core.admin import PortalAdmin, ReadOnlyAdmin, register_read_only
from apps.statusboard.domain.monitoring.payloads import parse_payload
from apps.statusboard.domain.monitoring.rules import replay_payloads
from apps.statusboard.domain.monitoring.sources import rebuild_services_of
from apps.statusboard.domain.states.history import rebuild
from apps.statusboard.enums import Monitoring
from apps.statusboard.models import (
    Announcement,
    DowntimeWindow,
    Incident,
    LabelRule,
    MonitoringGap,
    MonitoringSource,
    RawPayload,
    Service,
    StateInterval,
    UnmappedAlert,
)


class ServiceForm(forms.ModelForm):
    """A service. What its kind of monitoring needs is named at the field that lacks it."""

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        monitoring = cleaned.get("monitoring")
        is_watched = monitoring in (Monitoring.FEED, Monitoring.MANUAL)
        if monitoring == Monitoring.FEED and self._is_empty("source", cleaned):
            self.add_error("source", "Choose the source whose alerts report this service.")
        if is_watched and self._is_empty("monitored_since", cleaned):
            self.add_error("monitored_since", "Enter the date and time since when it is monitored.")
        return cleaned

    def _is_empty(self, name: str, cleaned: dict[str, Any]) -> bool:
        """Return whether nothing was entered: a value with an error has its own message."""
        return name not in self.errors and cleaned.get(name) is None


@admin.register(Service)
class ServiceAdmin(PortalAdmin):
    form = ServiceForm
    about = "A service that jobs depend on. Monitoring reports its state to the status board."
    document = "monitoring"
    fieldsets = (
        (None, {"fields": ("name", "slug", "kind", "parent", "depends_on")}),
        ("Monitoring", {"fields": ("monitoring", "source", "monitored_since")}),
        ("Shown to users", {"fields": ("advice", "owner", "contact", "runbook")}),
    )
    labels = {"slug": "Name in links", "parent": "Part of"}
    help_texts = {
        "name": "As users call it. It can be changed; alerts and known errors keep their service.",
        "slug": "Small letters, digits and hyphens. Known errors, alerts and the API name it so.",
        "parent": "The service of which it is a component; the status board shows it below.",
        "monitoring": (
            "A monitoring feed needs a source; with manual updates, incidents are reported on the "
            "portal. Both need the time since when."
        ),
        "monitored_since": "Before this, its state is unknown.",
    }
    column_titles = {"slug": "name in links", "parent": "part of"}
    list_display = ["name", "kind", "parent", "monitoring", "source", "owner", "slug"]
    list_filter = ["monitoring", "source"]
    instead_of_deleting = (
        "Set its monitoring to “Not monitored” instead: its incidents and history stay, and it "
        "gets no more. If it is a duplicate, let the label rules of alerts point to the right "
        "service, and choose that as “Part of”, so that the status board shows one below the other."
    )
    search_fields = ["name", "slug"]
    prepopulated_fields = {"slug": ["name"]}

    def save_model(self, request: HttpRequest, obj: Service, form: Any, change: bool) -> None:
        super().save_model(request, obj, form, change)
        rebuild(service_ids=[obj.pk])


@admin.register(MonitoringSource)
class MonitoringSourceAdmin(PortalAdmin):
    """Sources are created by `manage.py monitoring_source add`, which prints their token."""

    about = "A monitoring system that posts alerts to the portal, or that the portal asks."
    document = "monitoring"
    fieldsets = (
        (None, {"fields": ("name", "name_in_links", "feed", "mapping", "pull_url")}),
        (
            "When it is silent",
            {"fields": ("monitored_since", "heartbeat_timeout_seconds", "lease_seconds")},
        ),
        (
            "Received",
            {
                "fields": ("last_seen_at", "covered_until", "sends_heartbeats"),
                "classes": ("collapse",),
            },
        ),
    )
    list_display = [
        "name",
        "slug",
        "feed",
        "last_seen_at",
        "covered_until",
        "heartbeat_timeout_seconds",
        "lease_seconds",
    ]
    column_titles = {
        "slug": "name in links",
        "feed": "format",
        "covered_until": "states known until",
        "heartbeat_timeout_seconds": "silent after",
        "lease_seconds": "alerts end after",
    }
    labels = {
        "feed": "Format",
        "pull_url": "Fetch from",
        "heartbeat_timeout_seconds": "Silent after",
        "lease_seconds": "Alerts end after",
    }
    list_filter = ["feed"]
    filter_titles = {"feed": "format"}
    search_fields = ["name", "slug"]
    exclude = ("slug",)
    readonly_fields = ["name_in_links", "last_seen_at", "covered_until", "sends_heartbeats"]
    actions = ["reprocess"]
    instead_of_deleting = (
        "Choose another source for its services instead, and stop its messages: what it reported "
        "stays. Received payloads are dropped after 30 days, those that could not be read after "
        "180."
    )
    never = ("add",)

    def save_model(
        self, request: HttpRequest, obj: MonitoringSource, form: Any, change: bool
    ) -> None:
        before = form.initial.get("monitored_since") or obj.monitored_since
        obj.save(update_fields=[name for name in form.changed_data if name in form.fields])
        rebuild_services_of(source=obj, since=min(before, obj.monitored_since))

    @admin.display(description="name in links")
    def name_in_links(self, source: MonitoringSource) -> str:
        return source.slug

    @admin.action(description="Reprocess payloads that failed or had unmapped alerts")
    def reprocess(self, request: HttpRequest, sources: QuerySet[MonitoringSource]) -> None:
        count = sum(replay_payloads(source=source) for source in sources)
        messages.info(request, f"{count} payloads reprocessed at {timezone.localtime():%H:%M:%S}.")


@admin.register(LabelRule)
class LabelRuleAdmin(PortalAdmin):
    about = "Which service an alert is about, by its labels."
    document = "monitoring"
    deletes_in_bulk = True
    help_texts = {"source": "The monitoring system whose alerts it is about."}
    labels = {"matchers": "Labels"}
    list_display = ["__str__", "source", "service", "state"]
    list_filter = ["source", "service", "state"]
    search_fields = ["matchers", "service__name", "service__slug"]


@admin.register(RawPayload)
class RawPayloadAdmin(ReadOnlyAdmin):
    list_title = "Received payloads"
    list_display = ["received_at", "source", "state", "unmapped", "notes"]
    list_filter = ["state", "source"]
    exclude = ["body"]
    readonly_fields = ["text"]
    actions = ["reprocess"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[RawPayload]:
        return super().get_queryset(request).defer("body")

    @admin.display(description="Body")
    def text(self, payload: RawPayload) -> str:
        return bytes(payload.body[:20_000]).decode("utf-8", "replace")

    @admin.action(description="Reprocess selected payloads", permissions=["view"])
    def reprocess(self, request: HttpRequest, payloads: QuerySet[RawPayload]) -> None:
        for payload in payloads.order_by("received_at", "pk"):
            parse_payload(payload_id=payload.pk)


register_read_only(
    Incident,
    "started_at ended_at service state title source resolution",
    search="title dedup_key",
    filters=["state", "resolution", "source", "service"],
    changed_on=("Services", "statusboard:board"),
)
register_read_only(DowntimeWindow, "title starts_at ends_at cancelled_at scheduled_by")
register_read_only(Announcement, "title starts_at ends_at do_not_submit withdrawn_at posted_by")
register_read_only(
    StateInterval,
    "service state started_at ended_at cause",
    filters=["state", "service"],
    goes_with_its_record=True,
)
register_read_only(MonitoringGap, "source started_at ended_at", goes_with_its_record=True)
register_read_only(
    UnmappedAlert, "title source labels count last_seen_at", goes_with_its_record=True
)
