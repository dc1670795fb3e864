"""Archived jobs and dictionaries, to look at only. Contents have pages of their own."""

from django.contrib import admin

from apps.archive.models import ArchivedJob, Dictionary
from apps.core.admin import ReadOnlyAdmin


@admin.register(ArchivedJob)
class ArchivedJobAdmin(ReadOnlyAdmin):
    list_display = ["job_id", "cluster", "submitted_at", "captured_at", "script_bytes", "request_key", "stage"]
    list_filter = ["cluster"]
    list_select_related = ["cluster"]
    search_fields = ["=job_id", "=request_key"]
    ordering = ["-submitted_at", "-id"]
    exclude = ["script", "environment"]


@admin.register(Dictionary)
class DictionaryAdmin(ReadOnlyAdmin):
    list_display = ["kind", "trained_at"]
    ordering = ["-id"]
    exclude = ["data"]
