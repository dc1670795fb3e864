"""Jobs and totals, read-only, and account maps."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.utils import timezone

from apps.accounts.admin import user_of
from apps.core.admin import PortalAdmin, ReadOnlyAdmin
from apps.jobs.domain.collection.origin import map_account
from apps.jobs.enums import MappedName
from apps.jobs.models import (
    AccountMap,
    ArchivedMonth,
    Collection,
    FlaggedRecord,
    HourlyTotals,
    Job,
    QueueReading,
)

MOST_ROWS = 2000


@admin.register(Job)
class JobAdmin(ReadOnlyAdmin):
    list_display = [
        "job_id",
        "attempt",
        "cluster",
        "state",
        "ended_at",
        "host",
        "experiment",
        "request_key",
        "stage",
    ]
    list_filter = ["state", "cluster", "experiment"]
    search_fields = ["=job_id", "=spool_id"]
    ordering = ["-ended_at", "-id"]
    last_row = MOST_ROWS


@admin.register(Collection)
class CollectionAdmin(ReadOnlyAdmin):
    about = "How far the accounting of each cluster has been read, and its last error."
    list_title = "Collection of jobs"
    goes_with_its_record = True
    ordering = ["cluster__name"]
    list_display = ["cluster", "collected_until", "last_run_at", "last_success_at", "last_error"]


@admin.register(FlaggedRecord)
class FlaggedRecordAdmin(ReadOnlyAdmin):
    list_display = ["pk", "cluster", "source", "reason", "stored", "received_at"]
    list_filter = ["cluster", "source", "stored"]
    ordering = ["-received_at", "-id"]
    last_row = MOST_ROWS


@admin.register(ArchivedMonth)
class ArchivedMonthAdmin(ReadOnlyAdmin):
    list_display = ["month", "jobs", "archived_at", "dropped_at", "restored_at"]


@admin.register(QueueReading)
class QueueReadingAdmin(ReadOnlyAdmin):
    goes_with_its_record = True
    list_display = ["cluster", "at", "last_error"]


@admin.register(HourlyTotals)
class HourlyTotalsAdmin(ReadOnlyAdmin):
    list_display = [
        "hour",
        "cluster",
        "experiment",
        "request_key",
        "stage",
        "state",
        "jobs",
        "core_seconds",
    ]
    # Matches the index of the unique constraint.
    ordering = ["-hour", "-cluster_id", "-experiment_id", "-request_key", "-stage", "-state"]
    last_row = MOST_ROWS


@admin.register(AccountMap)
class AccountMapAdmin(PortalAdmin):
    """Maps accounts and users to experiments.

    A background task then assigns existing jobs that have no experiment.
    """

    about = "Whose jobs belong to which experiment, by the account or user that ran them."
    document = "jobs"
    list_title = "Accounts of experiments"
    record_name = "account"
    list_display = ["account", "kind", "cluster", "experiment"]
    ordering = ["account", "kind", "cluster"]
    column_titles = {"account": "account or user"}
    empty_choices = {"cluster": "all clusters"}
    deletes_in_bulk = True
    list_filter = ["kind", "cluster", "experiment"]
    search_fields = ["account", "experiment__key"]
    never = ("change",)
    fields = ("account", "kind", "cluster", "experiment")
    help_texts = {
        "account": "As the scheduler's accounting writes it.",
        "kind": "What the name above is: the account that jobs are charged to, or their user.",
        "experiment": "Its jobs without an experiment get it, earlier ones in the background.",
    }

    def save_model(self, request: HttpRequest, obj: AccountMap, form: Any, change: bool) -> None:
        stored = map_account(
            account=obj.account,
            kind=MappedName(obj.kind),
            experiment=obj.experiment,
            cluster=obj.cluster,
            by=user_of(request),
            at=timezone.now(),
        )
        obj.pk = stored.pk
