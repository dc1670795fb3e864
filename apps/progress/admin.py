"""Production reports, read-only."""

from django.contrib import admin

from apps.core.admin import ReadOnlyAdmin
from apps.progress.models import ProductionReport


@admin.register(ProductionReport)
class ProductionReportAdmin(ReadOnlyAdmin):
    list_display = ["request", "sha256", "frozen_at"]
