"""Hosts in the admin: probes can be edited; the rest is read-only, or changed on its pages."""

from django.contrib import admin
from django.db import models
from django.http import HttpRequest

from apps.core.admin import PortalAdmin, register_read_only
from apps.core.web.text_fields import NumberedText
from apps.hosts.models import (
    CentralCause,
    HostExclusion,
    HostSpan,
    MeasuredState,
    Probe,
    ProbeJob,
    ProbeResult,
)


@admin.register(Probe)
class ProbeAdmin(PortalAdmin):
    about = "A script that runs on a host to measure whether it works."
    document = "hosts"
    list_display = ["name", "description", "service", "timeout_seconds", "active"]
    list_filter = ["active", "service"]
    search_fields = ["name", "description"]
    fieldsets = (
        (None, {"fields": ("name", "description", "script", "active")}),
        ("Where and how long", {"fields": ("clusters", "timeout_seconds", "service")}),
    )
    labels = {"active": "Runs"}
    help_texts = {
        "name": "Results and alerts name it. It cannot be changed later.",
        "clusters": "Where it runs. Empty: on all clusters to which the portal submits.",
        "active": "Otherwise it is kept, and does not run.",
    }
    column_titles = {"active": "runs"}
    instead_of_deleting = "Untick “Runs” instead: it is kept with its results, and does not run."
    filter_titles = {"active": "runs"}
    formfield_overrides = {
        models.TextField: {"widget": NumberedText(rows=16)},
    }

    def get_readonly_fields(self, request: HttpRequest, obj: Probe | None = None) -> list[str]:
        """Jobs under way report by the name."""
        return ["name"] if obj else []


register_read_only(
    HostExclusion,
    "host cluster by automatic started_at expires_at ended_at ended_as",
    search="host",
    filters=["cluster", "automatic", "ended_as"],
    changed_on=("Hosts", "hosts:exclusions"),
)
register_read_only(
    CentralCause, "cluster failing_hosts known_hosts started_at ended_at", filters=["cluster"]
)
register_read_only(
    ProbeJob,
    "name cluster host state good planned_at ended_at last_error",
    search="host",
    filters=["cluster", "state", "good"],
)
register_read_only(
    ProbeResult,
    "job probe good seconds message measured_at",
    filters=["good"],
    about="How one probe of a probe job ended, and how long it took.",
)
register_read_only(
    MeasuredState,
    "cluster host probe good message measured_at since",
    search="host",
    filters=["cluster", "probe", "good"],
)
register_read_only(
    HostSpan,
    "cluster host state words reason rebooted since seen_at until",
    search="host",
    filters=["cluster", "state"],
)
