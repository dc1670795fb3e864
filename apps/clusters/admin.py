from django.contrib import admin

from apps.clusters.models import Cluster, Site


@admin.register(Site)
class SiteAdmin(admin.ModelAdmin):
    search_fields = ["name"]


@admin.register(Cluster)
class ClusterAdmin(admin.ModelAdmin):
    list_display = ["name", "scheduler", "site", "service", "collects", "submits"]
    list_select_related = ["site", "service"]
