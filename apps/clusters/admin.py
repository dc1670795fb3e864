from django.contrib import admin

from apps.clusters.models import Cluster, Site
from apps.core.admin import PortalAdmin


@admin.register(Site)
class SiteAdmin(PortalAdmin):
    search_fields = ["name"]


@admin.register(Cluster)
class ClusterAdmin(PortalAdmin):
    list_display = ["name", "scheduler", "site", "service", "collects", "submits"]
