"""Reports in the admin, read-only."""

from django.contrib import admin

from apps.core.admin import ReadOnlyAdmin
from apps.progress.models import ProductionReport, WeeklyReport


@admin.register(ProductionReport)
class ProductionReportAdmin(ReadOnlyAdmin):
    list_display = ["request", "sha256", "frozen_at"]


@admin.register(WeeklyReport)
class WeeklyReportAdmin(ReadOnlyAdmin):
    about = "The report of a week, as it was on the Monday after. It never changes."
    list_display = ["experiment", "monday", "frozen_at"]
    list_filter = ["experiment"]
