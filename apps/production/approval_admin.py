"""Groups and rules of approval in the back office; what people signed and handed over is to look at only."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.utils import timezone

from apps.core.admin import ReadOnlyAdmin
from apps.core.services import publish
from apps.production.approval_models import ApprovalGroup, ApprovalRule, Delegation, Reminder, Signature


class _Announced(admin.ModelAdmin):
    """Rows whose changes are events, as they decide who signs."""

    kind = ""

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        """Write the event once members and groups are saved too."""
        super().save_related(request, form, formsets, change)
        data = {"fields": sorted(form.changed_data)}
        publish(kind=self.kind, target=form.instance, by=request.user, at=timezone.now(), data=data)


@admin.register(ApprovalGroup)
class ApprovalGroupAdmin(_Announced):
    kind = "approval_group.saved"
    list_display = ["name", "experiment", "role"]
    list_filter = ["experiment", "role"]
    list_select_related = ["experiment"]
    search_fields = ["name"]
    autocomplete_fields = ["members"]


@admin.register(ApprovalRule)
class ApprovalRuleAdmin(_Announced):
    """Where rules fit together, all their groups must sign; without any, one approver does."""

    kind = "approval_rule.saved"
    list_display = ["__str__", "remind_after_days", "enabled"]
    list_filter = ["enabled", "experiment"]
    list_select_related = ["workflow", "experiment"]
    filter_horizontal = ["groups"]


@admin.register(Signature)
class SignatureAdmin(ReadOnlyAdmin):
    list_display = ["request", "group_name", "by", "for_user", "at", "version", "withdrawn_at"]
    list_select_related = ["request", "by", "for_user"]
    search_fields = ["request__key"]
    ordering = ["-pk"]


@admin.register(Delegation)
class DelegationAdmin(ReadOnlyAdmin):
    list_display = ["to_user", "from_user", "group", "role", "from_at", "until_at", "revoked_at"]
    list_select_related = ["to_user", "from_user", "group"]


@admin.register(Reminder)
class ReminderAdmin(ReadOnlyAdmin):
    list_display = ["request", "state", "since", "at"]
    list_select_related = ["request"]
    ordering = ["-pk"]
