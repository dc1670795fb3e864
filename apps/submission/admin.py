"""Assignments and submissions in the back office; what the scheduler refused is sent again by the service."""

from django.contrib import admin

from apps.accounts.models import User
from apps.core.admin import ReadOnlyAdmin
from apps.production.admin.actions import Asked, ReasonAction, ReasonActionsAdmin, each
from apps.production.domain.actors import may
from apps.production.enums import Actor
from apps.submission.domain.assignment import send_refused_again
from apps.submission.enums import SubmissionState
from apps.submission.models import Assignment, Submission, TakenFile


@admin.register(Assignment)
class AssignmentAdmin(ReadOnlyAdmin):
    list_display = ["request", "cluster", "most_in_flight", "assigned_at", "assigned_by"]
    list_filter = ["cluster"]
    search_fields = ["request__key"]


def _refusal(submission: Submission, user: User) -> str:
    if submission.state != SubmissionState.FAILED:
        return f"it is “{submission.get_state_display()}”."
    return "" if may(user, Actor.OPERATOR, submission.request) else f"required role: {Actor.OPERATOR.label}."


def _send_again(submission: Submission, asked: Asked) -> str:
    send_refused_again(submission=submission, by=asked.by, at=asked.at, reason=asked.reason)
    return f"{submission} is sent again in a moment."


@admin.register(Submission)
class SubmissionAdmin(ReasonActionsAdmin):
    reason_actions = [
        ReasonAction("send_again", "Send again", _send_again, each(_refusal, "it is sent again, as it is."))
    ]
    list_display = ["request", "number", "stage_name", "cluster", "state", "spool_id", "tasks", "ended", "completed"]
    list_filter = ["state", "cluster"]
    search_fields = ["request__key", "spool_id"]
    ordering = ["-id"]


@admin.register(TakenFile)
class TakenFileAdmin(ReadOnlyAdmin):
    list_display = ["name", "request", "job", "taken_at"]
    search_fields = ["request__key", "name"]
