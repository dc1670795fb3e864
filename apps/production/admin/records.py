"""Records that belong to requests, read-only in the admin. Holds can be lifted."""

from datetime import datetime
from typing import Any

from django.contrib import admin

from apps.accounts.models import User
from apps.core.admin import EMPTY, ReadOnlyAdmin, register_read_only
from apps.production.admin.actions import ReasonAction
from apps.production.domain.holds import lift_hold, may_lift
from apps.production.models import (
    Attention,
    Comment,
    DatasetPart,
    Delegation,
    FormKey,
    Hold,
    OutputReport,
    QueueEntry,
    QueueState,
    Reminder,
    Request,
    RequestCounter,
    RequestLink,
    RequestRevision,
    RequestTemplate,
    ShareUse,
    Signature,
    Stage,
    StageAcceptance,
    StageCounts,
    StageHistory,
    StageLocation,
    WorkflowVersion,
)

register_read_only(
    Attention,
    "request kind since words",
    search="request__key words",
    filters=["kind", "request__experiment"],
    about="Why a request needs attention, and since when.",
)
register_read_only(
    Stage,
    "request position name kind release configuration events jobs",
    search="request__key name release configuration input_dataset output_dataset",
    filters=["kind", "request__experiment"],
    ordering=["-request", "position"],
)
register_read_only(
    StageHistory,
    "request name release configuration attempts completed last_ended_at",
    search="request__key name release configuration",
    filters=["experiment"],
    about="Resource use of the jobs of one stage, for estimates of later requests.",
)
register_read_only(
    DatasetPart,
    "name request split_from defined_at error",
    search="name request__key split_from__key",
    filters=[("defined_at", EMPTY)],
    exclude=["files"],
    about="Some files of another dataset, which the portal defines for a request that it drafts.",
)
register_read_only(RequestCounter, "experiment last", search="experiment__key")
register_read_only(
    RequestLink,
    "earlier kind later note by at",
    search="earlier__key later__key by",
    filters=["kind", "earlier__experiment"],
    ordering=["-pk"],
)
register_read_only(
    FormKey,
    "request author version by_button",
    search="request__key author__username",
    filters=["by_button"],
    exclude=["key"],
)
register_read_only(
    Comment,
    "request place by at resolved_at withdrawn_at",
    search="request__key text by__username",
    filters=[("resolved_at", EMPTY), ("withdrawn_at", EMPTY)],
    about="A comment on a request or one of its fields.",
)
register_read_only(
    RequestRevision,
    "request version at by is_submitted",
    search="request__key by",
    filters=["is_submitted", "request__experiment"],
    about="The content of a request when it was saved or submitted.",
)
register_read_only(
    RequestTemplate,
    "name experiment workflow_key workflow_number saved_at saved_by",
    search="name workflow_key saved_by",
    filters=["experiment", "workflow_key"],
)
register_read_only(
    WorkflowVersion,
    "type number title created_at created_by",
    search="type__key title created_by",
    filters=["type"],
)
register_read_only(
    Signature,
    "request group_name by for_user at version withdrawn_at",
    search="request__key group_name by__username",
    filters=[("withdrawn_at", EMPTY), "group"],
    ordering=["-pk"],
    about="The approval of the content of a request by a user.",
)
register_read_only(
    Delegation,
    "__str__ group role from_at until_at revoked_at",
    search="to_user__username from_user__username",
    filters=[("revoked_at", EMPTY), "group"],
    list_select_related=["to_user", "from_user", "group"],
)
register_read_only(Reminder, "request state since at", search="request__key", filters=["state"])
register_read_only(
    QueueEntry,
    "request is_queued points hand_points hand_by size_basis sized_at",
    search="request__key",
    filters=["is_queued"],
)
register_read_only(QueueState, "version change changed_by changed_at scored_at starts starts_days")
register_read_only(ShareUse, "experiment core_seconds days as_of", search="experiment__key")


class _OfStage(ReadOnlyAdmin):
    """Rows that belong to a stage, shown with request and stage."""

    list_select_related = ["stage__request"]
    search_fields = ["stage__request__key", "stage__name", "by"]
    list_filter = ["stage__request__experiment"]

    @admin.display(description="request", ordering="stage__request__key")
    def request_of(self, row: Any) -> Request:
        production_request: Request = row.stage.request
        return production_request

    @admin.display(description="stage")
    def stage_name(self, row: Any) -> str:
        return f"{row.stage.position + 1} {row.stage.name}"


@admin.register(StageCounts)
class StageCountsAdmin(_OfStage):
    list_display = [
        "request_of",
        "stage_name",
        "files_in",
        "events_in",
        "files_out",
        "events_out",
        "reports",
    ]
    search_fields = ["stage__request__key", "stage__name"]


@admin.register(StageLocation)
class StageLocationAdmin(_OfStage):
    list_display = ["request_of", "stage_name", "note", "by", "at"]
    search_fields = [*_OfStage.search_fields, "note"]


@admin.register(StageAcceptance)
class StageAcceptanceAdmin(_OfStage):
    list_display = ["request_of", "stage_name", "jobs_completed", "jobs_asked", "by", "at"]
    search_fields = [*_OfStage.search_fields, "reason"]


@admin.register(OutputReport)
class OutputReportAdmin(_OfStage):
    list_display = [
        "key",
        "request_of",
        "stage_name",
        "files_in",
        "events_in",
        "files_out",
        "events_out",
        "by",
        "at",
    ]
    list_filter = ["counted", *_OfStage.list_filter]
    search_fields = ["key", *_OfStage.search_fields]


class Lift(ReasonAction):
    name = "lift"
    label = "Lift"
    outcome = "new jobs start again."

    def refusal(self, row: Hold, user: User) -> str:
        if row.lifted_at:
            return "already lifted."
        if may_lift(user, row):
            return ""
        return "required role: approver or shifter."

    def act(self, row: Hold, *, by: User, at: datetime, reason: str, **_: Any) -> str:
        lift_hold(hold=row, by=by, at=at, reason=reason)
        return "lifted."


@admin.register(Hold)
class HoldAdmin(ReadOnlyAdmin):
    list_display = ["__str__", "reason", "by", "at", "lifted_by", "lifted_at"]
    list_filter = [("lifted_at", EMPTY), "experiment"]
    list_select_related = ["experiment", "stage__request__experiment", "by", "lifted_by"]
    search_fields = ["reason", "experiment__key", "stage__request__key", "by__username"]
    actions = [Lift()]
