"""Assignments and submissions in the back office, to look at only."""

from django.contrib import admin

from apps.core.admin import ReadOnlyAdmin
from apps.submission.models import Assignment, Submission


@admin.register(Assignment)
class AssignmentAdmin(ReadOnlyAdmin):
    list_display = ["request", "cluster", "most_in_flight", "assigned_at", "assigned_by"]
    list_filter = ["cluster"]
    list_select_related = ["request", "cluster"]
    search_fields = ["request__key"]


@admin.register(Submission)
class SubmissionAdmin(ReadOnlyAdmin):
    list_display = ["request", "number", "stage_name", "cluster", "state", "spool_id", "tasks", "ended", "completed"]
    list_filter = ["state", "cluster"]
    list_select_related = ["request", "cluster"]
    search_fields = ["request__key", "spool_id"]
    ordering = ["-id"]
