"""Assignments and submissions in the admin, with an action to submit refused arrays again."""

from datetime import datetime
from typing import Any

from django.contrib import admin

from apps.accounts.models import User
from apps.core.admin import PortalAdmin, ReadOnlyAdmin
from apps.production.admin.actions import ReasonAction
from apps.production.domain.actors import may
from apps.production.enums import Actor
from apps.submission.domain.arrays.assignment import send_refused_again
from apps.submission.enums import SubmissionState
from apps.submission.models import (
    Assignment,
    DebugProfile,
    FilesCheck,
    KnownDatabase,
    RetryBatch,
    RetryJob,
    StageScouts,
    Submission,
    UnknownArray,
)


@admin.register(Assignment)
class AssignmentAdmin(ReadOnlyAdmin):
    list_display = ["request", "cluster", "most_in_flight", "assigned_at", "assigned_by"]
    list_filter = ["cluster"]
    search_fields = ["request__key"]


class SendAgain(ReasonAction):
    name = "send_again"
    label = "Submit again"
    outcome = "it is submitted again unchanged."

    def refusal(self, row: Submission, user: User) -> str:
        if row.state != SubmissionState.FAILED:
            return f"it is “{row.get_state_display()}”."
        if may(user, Actor.OPERATOR, row.request):
            return ""
        return f"required role: {Actor.OPERATOR.label}."

    def act(self, row: Submission, *, by: User, at: datetime, reason: str, **_: Any) -> str:
        send_refused_again(submission=row, by=by, at=at, reason=reason)
        return f"{row} will be submitted again in a moment."


@admin.register(FilesCheck)
class FilesCheckAdmin(ReadOnlyAdmin):
    list_display = ["request", "error", "checked_at"]
    search_fields = ["request__key"]


@admin.register(Submission)
class SubmissionAdmin(ReadOnlyAdmin):
    actions = [SendAgain()]
    list_display = [
        "request",
        "number",
        "stage_name",
        "cluster",
        "state",
        "spool_id",
        "tasks",
        "ended",
        "completed",
    ]
    list_filter = ["state", "cluster"]
    search_fields = ["request__key", "spool_id"]
    ordering = ["-id"]


@admin.register(DebugProfile)
class DebugProfileAdmin(PortalAdmin):
    about = "What is changed when a failed job is run again with more debug output."
    document = "submission"
    fieldsets = (
        (None, {"fields": ("name", "experiment", "description")}),
        ("Debug output", {"fields": ("environment", "arguments", "trace")}),
        (
            "Limits and place",
            {
                "fields": ("memory_factor", "time_factor", "most_events", "one_file", "host"),
                "classes": ("collapse",),
            },
        ),
    )
    help_texts = {
        "name": "Chosen by this name when a job is run again.",
        "host": "Where it runs, compared with the failed job.",
    }
    labels = {"most_events": "At most this many events", "one_file": "One input file"}
    empty_choices = {"experiment": "all experiments"}
    list_display = [
        "name",
        "experiment",
        "description",
        "trace",
        "memory_factor",
        "time_factor",
        "host",
    ]
    list_filter = ["experiment"]
    search_fields = ["name", "description"]


@admin.register(StageScouts)
class StageScoutsAdmin(ReadOnlyAdmin):
    list_display = ["request", "position", "state", "allowed", "completed", "failed", "judged_at"]
    list_select_related = ["request"]
    list_filter = ["state"]
    search_fields = ["request__key"]


@admin.register(RetryBatch)
class RetryBatchAdmin(ReadOnlyAdmin):
    list_display = ["title", "state", "step", "created_at", "created_by", "released_at", "ended_at"]
    list_filter = ["state"]
    search_fields = ["title", "created_by"]


@admin.register(RetryJob)
class RetryJobAdmin(ReadOnlyAdmin):
    list_display = ["job", "batch", "state", "why", "submission", "released_at"]
    list_select_related = ["job__cluster", "batch", "submission__request", "submission__cluster"]
    list_filter = ["state"]
    search_fields = ["job__spool_id", "why"]


@admin.register(KnownDatabase)
class KnownDatabaseAdmin(ReadOnlyAdmin):
    list_display = ["identity", "timeline", "noticed_at", "seen_at", "state_at"]
    search_fields = ["identity"]


@admin.register(UnknownArray)
class UnknownArrayAdmin(ReadOnlyAdmin):
    list_display = ["spool_id", "cluster", "request", "position", "submitted_at", "noticed_at"]
    list_filter = ["cluster"]
    search_fields = ["spool_id", "request__key"]
