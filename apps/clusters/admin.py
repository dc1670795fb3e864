from django.contrib import admin

from apps.clusters.models import Cluster, Host, Site
from apps.core.admin import PortalAdmin, ReadOnlyAdmin


@admin.register(Site)
class SiteAdmin(PortalAdmin):
    search_fields = ["name"]


@admin.register(Cluster)
class ClusterAdmin(PortalAdmin):
    list_display = ["name", "scheduler", "site", "service", "collects", "submits"]


@admin.register(Host)
class HostAdmin(ReadOnlyAdmin):
    list_display = ["name", "cluster", "cpu_model", "cores", "memory_bytes", "state", "listed_at"]
    list_filter = ["cluster", "state"]
    search_fields = ["name", "cpu_model"]
