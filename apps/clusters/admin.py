import re
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.text import capfirst

from apps.clusters.domain import adapter_of
from apps.clusters.models import Cluster, Host, Site
from apps.clusters.schedulers.base import SchedulerError
from apps.clusters.schedulers.registry import SCHEDULERS
from apps.core.admin import PortalAdmin, ReadOnlyAdmin
from apps.core.web.plugin_field import PluginField

#: Captured jobs name their cluster by such a name, too.
_NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]*"


@admin.register(Site)
class SiteAdmin(PortalAdmin):
    about = "A place with one or more clusters, by which statistics and failures are compared."
    document = "slurm"
    list_display = ["name", "cluster_names"]
    search_fields = ["name", "cluster__name"]
    instead_of_deleting = "Move its clusters to another site first."

    def get_queryset(self, request: HttpRequest) -> QuerySet[Site]:
        return super().get_queryset(request).prefetch_related("cluster_set")

    @admin.display(description="clusters")
    def cluster_names(self, site: Site) -> str:
        return ", ".join(cluster.name for cluster in site.cluster_set.all()) or "–"


class ClusterForm(forms.ModelForm):
    """A cluster. Its scheduler must accept the options: otherwise no job would be collected."""

    def clean_name(self) -> str:
        """Refuse a new name that no scheduler has, nor capture can send jobs under."""
        name = str(self.cleaned_data["name"])
        if "name" in self.changed_data and not re.fullmatch(_NAME, name):
            raise forms.ValidationError(
                "Use only letters, digits, “_”, “.” and “-” in “Name”, and begin with a letter or "
                "digit."
            )
        return name

    def clean(self) -> dict[str, Any]:
        """Check the options only where they change: a faulty cluster can still be switched off."""
        cleaned = super().clean() or {}
        options = cleaned.get("options")
        scheduler = cleaned.get("scheduler")
        if {"options", "scheduler"}.isdisjoint(self.changed_data):
            return cleaned
        if scheduler and isinstance(options, dict):
            name = cleaned.get("name") or self.instance.name
            try:
                adapter_of(Cluster(name=name, scheduler=scheduler, options=options))
            except SchedulerError as error:
                self.add_error("options", f"{capfirst(str(error.__cause__ or error))}.")
        return cleaned


@admin.register(Cluster)
class ClusterAdmin(PortalAdmin):
    about = "A batch system whose jobs the portal collects, and may submit."
    document = "slurm"
    form = ClusterForm
    fieldsets = (
        (None, {"fields": ("name", "site", "service")}),
        ("Scheduler and accounting", {"fields": ("scheduler", "options", "collects")}),
        (
            "Submission",
            {"fields": ("submits", "submission", "max_memory_bytes", "max_wall_seconds")},
        ),
    )
    list_display = ["name", "scheduler", "site", "service", "collects", "submits"]
    list_filter = ["scheduler", "collects", "submits", "site"]
    column_titles = {"collects": "collects jobs", "submits": "submits jobs"}
    filter_titles = {"collects": "collects jobs", "submits": "submits jobs"}
    labels = {
        "max_memory_bytes": "Memory limit of a job",
        "max_wall_seconds": "Time limit of a job",
        "submission": "Submission options",
        "collects": "Collects jobs",
        "submits": "Submits jobs",
    }
    help_texts = {
        "name": (
            "As the scheduler calls it. Captured jobs and their accounting are matched by it, so "
            "it should not change later."
        ),
        "site": "Statistics and failures are compared by site.",
        "options": (
            "How its scheduler is reached. Leave {} if the scheduler's commands work on the hosts "
            "of the workers. Otherwise, write names with texts; see docs/slurm.md."
        ),
    }
    search_fields = ["name", "site__name"]
    instead_of_deleting = (
        "Untick “Collects jobs” and “Submits jobs” instead: its jobs and figures stay, and it gets "
        "no more. One with a mistyped name is removed, with all its jobs, by “manage.py cluster "
        "remove”."
    )

    def save_model(self, request: HttpRequest, obj: Cluster, form: Any, change: bool) -> None:
        """Say where to see whether the jobs of a cluster can be read."""
        super().save_model(request, obj, form, change)
        if obj.collects and not change:
            text = "The portal now tries to read its accounting: its page says whether that works."
            messages.info(request, text)

    def formfield_for_dbfield(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        """Offer the installed schedulers."""
        if db_field.name == "scheduler":
            help_text = "What its jobs are read from, and submitted to."
            return PluginField(SCHEDULERS, help_text=help_text)
        return super().formfield_for_dbfield(db_field, request, **kwargs)


@admin.register(Host)
class HostAdmin(ReadOnlyAdmin):
    list_display = ["name", "cluster", "cpu_model", "cores", "memory_bytes", "state", "listed_at"]
    list_filter = ["cluster", "state"]
    search_fields = ["name", "cpu_model"]
