"""What is kept beside requests, in the back office: to look at; holds are lifted by their service."""

from datetime import datetime
from typing import Any

from django.contrib import admin

from apps.accounts.models import User
from apps.core.admin import ReadOnlyAdmin
from apps.production.admin.actions import ReasonAction
from apps.production.domain.holds import lift_hold, may_lift
from apps.production.models import (
    Comment,
    DatasetPart,
    FormKey,
    Hold,
    OutputReport,
    Request,
    RequestCounter,
    RequestLink,
    RequestRevision,
    RequestTemplate,
    Stage,
    StageAcceptance,
    StageCounts,
    StageHistory,
    StageLocation,
)


@admin.register(Stage)
class StageAdmin(ReadOnlyAdmin):
    list_display = ["request", "position", "name", "kind", "release", "configuration", "events", "jobs"]
    list_filter = ["kind", "request__experiment"]
    search_fields = ["request__key", "name", "release", "configuration", "input_dataset", "output_dataset"]
    ordering = ["-request", "position"]


class _OfStage(ReadOnlyAdmin):
    """Rows of a stage, under its request and place."""

    list_select_related = ["stage__request"]
    search_fields = ["stage__request__key", "stage__name"]
    list_filter = ["stage__request__experiment"]

    @admin.display(description="request", ordering="stage__request__key")
    def request_of(self, row: Any) -> Request:
        found: Request = row.stage.request
        return found

    @admin.display(description="stage")
    def stage_name(self, row: Any) -> str:
        return f"{row.stage.position + 1} {row.stage.name}"


@admin.register(StageCounts)
class StageCountsAdmin(_OfStage):
    list_display = ["request_of", "stage_name", "files_in", "events_in", "files_out", "events_out", "reports"]


@admin.register(StageLocation)
class StageLocationAdmin(_OfStage):
    list_display = ["request_of", "stage_name", "note", "by", "at"]
    search_fields = [*_OfStage.search_fields, "note", "by"]


@admin.register(StageAcceptance)
class StageAcceptanceAdmin(_OfStage):
    list_display = ["request_of", "stage_name", "jobs_completed", "jobs_asked", "by", "at"]
    search_fields = [*_OfStage.search_fields, "by", "reason"]


@admin.register(OutputReport)
class OutputReportAdmin(_OfStage):
    list_display = ["key", "request_of", "stage_name", "files_in", "events_in", "files_out", "events_out", "by", "at"]
    list_filter = ["counted", *_OfStage.list_filter]
    search_fields = ["key", *_OfStage.search_fields, "by"]


@admin.register(DatasetPart)
class DatasetPartAdmin(ReadOnlyAdmin):
    list_display = ["name", "request", "split_from", "defined_at", "error"]
    list_filter = [("defined_at", admin.EmptyFieldListFilter)]
    search_fields = ["name", "request__key", "split_from__key"]
    exclude = ["files"]


@admin.register(StageHistory)
class StageHistoryAdmin(ReadOnlyAdmin):
    list_display = ["request", "name", "release", "configuration", "attempts", "completed", "last_ended_at"]
    list_filter = ["experiment"]
    search_fields = ["request__key", "name", "release", "configuration"]


@admin.register(RequestCounter)
class RequestCounterAdmin(ReadOnlyAdmin):
    list_display = ["experiment", "last"]
    search_fields = ["experiment__key"]


@admin.register(RequestLink)
class RequestLinkAdmin(ReadOnlyAdmin):
    list_display = ["earlier", "kind", "later", "note", "by", "at"]
    list_filter = ["kind", "earlier__experiment"]
    search_fields = ["earlier__key", "later__key", "by"]
    ordering = ["-pk"]


@admin.register(FormKey)
class FormKeyAdmin(ReadOnlyAdmin):
    list_display = ["request", "author", "version", "by_button"]
    list_filter = ["by_button"]
    search_fields = ["request__key", "author__username"]
    exclude = ["key"]


@admin.register(Comment)
class CommentAdmin(ReadOnlyAdmin):
    list_display = ["request", "place", "by", "at", "resolved_at", "withdrawn_at"]
    list_filter = [("resolved_at", admin.EmptyFieldListFilter), ("withdrawn_at", admin.EmptyFieldListFilter)]
    search_fields = ["request__key", "text", "by__username"]


@admin.register(RequestRevision)
class RequestRevisionAdmin(ReadOnlyAdmin):
    list_display = ["request", "version", "at", "by", "is_submitted"]
    list_filter = ["is_submitted", "request__experiment"]
    search_fields = ["request__key", "by"]


class Lift(ReasonAction):
    name, label, words = "lift", "Lift", "new jobs start again."

    def refusal(self, row: Hold, user: User) -> str:
        if row.lifted_at:
            return "it was lifted already."
        return "" if may_lift(user, row) else "required role: approver or shifter."

    def act(self, row: Hold, *, by: User, at: datetime, reason: str, **_: Any) -> str:
        lift_hold(hold=row, by=by, at=at, reason=reason)
        return "it is lifted."


@admin.register(Hold)
class HoldAdmin(ReadOnlyAdmin):
    list_display = ["__str__", "reason", "by", "at", "lifted_by", "lifted_at"]
    list_filter = [("lifted_at", admin.EmptyFieldListFilter), "experiment"]
    list_select_related = ["experiment", "stage__request__experiment", "by", "lifted_by"]
    search_fields = ["reason", "experiment__key", "stage__request__key", "by__username"]
    actions = [Lift()]


@admin.register(RequestTemplate)
class RequestTemplateAdmin(ReadOnlyAdmin):
    list_display = ["name", "experiment", "workflow_key", "workflow_number", "saved_at", "saved_by"]
    list_filter = ["experiment", "workflow_key"]
    search_fields = ["name", "workflow_key", "saved_by"]
