"""Jobs and totals to look at, and the map from accounts to experiments."""

from typing import Any, cast

from django.contrib import admin
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.functional import cached_property

from apps.core.admin import ReadOnlyAdmin
from apps.jobs import services
from apps.jobs.models import AccountMap, Collection, HourlyTotals, Job, QueueReading

MOST_ROWS = 2000


class CappedPaginator(Paginator):
    """Counts no further than anybody pages: a table of millions is not counted for a page of it."""

    @cached_property
    def count(self) -> int:
        rows = cast("QuerySet[Any]", self.object_list)
        return len(rows.order_by().values_list("pk")[:MOST_ROWS])


@admin.register(Job)
class JobAdmin(ReadOnlyAdmin):
    list_display = ["job_id", "attempt", "cluster", "state", "ended_at", "host", "experiment", "request_key", "stage"]
    list_select_related = ["cluster", "experiment"]
    list_filter = ["state", "cluster", "experiment"]
    search_fields = ["=job_id", "=spool_id"]
    ordering = ["-ended_at", "-id"]
    paginator = CappedPaginator


@admin.register(Collection)
class CollectionAdmin(ReadOnlyAdmin):
    list_display = ["cluster", "collected_until", "last_run_at", "last_success_at", "last_error"]
    list_select_related = ["cluster"]


@admin.register(QueueReading)
class QueueReadingAdmin(ReadOnlyAdmin):
    list_display = ["cluster", "at", "last_error"]
    list_select_related = ["cluster"]


@admin.register(HourlyTotals)
class HourlyTotalsAdmin(ReadOnlyAdmin):
    list_display = ["hour", "cluster", "experiment", "request_key", "stage", "state", "jobs", "core_seconds"]
    list_select_related = ["cluster", "experiment"]
    ordering = ["-hour", "-id"]
    paginator = CappedPaginator


@admin.register(AccountMap)
class AccountMapAdmin(admin.ModelAdmin):
    """Which experiment an account's jobs belong to; jobs that belong to none get it at once."""

    list_display = ["account", "cluster", "experiment"]
    list_select_related = ["cluster", "experiment"]

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def save_model(self, request: HttpRequest, obj: AccountMap, form: Any, change: bool) -> None:
        stored = services.map_account(
            account=obj.account, experiment=obj.experiment, cluster=obj.cluster, by=request.user, at=timezone.now()
        )
        obj.pk = stored.pk
