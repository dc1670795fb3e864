"""Approval groups and rules in the admin."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import Exists, OuterRef, QuerySet
from django.http import HttpRequest
from django.utils import timezone

from apps.accounts.admin import user_of
from apps.accounts.models import User
from apps.core.admin import EMPTY, LongListAdmin, PortalAdmin
from apps.core.domain.events import publish
from apps.production.admin.actions import ReasonAction
from apps.production.domain.approvals.groups import plan_retirement, retire_group
from apps.production.models import (
    REMIND_AFTER_DAYS,
    ApprovalGroup,
    ApprovalRule,
    Delegation,
    Signature,
)
from apps.production.permissions import may_change_groups


class _WithEvents(PortalAdmin):
    """Rows whose changes are published as events, because they decide who signs."""

    saved_kind = deleted_kind = ""

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        """Publish the event after members and groups are saved."""
        super().save_related(request, form, formsets, change)
        data = {"fields": sorted(form.changed_data)}
        publish(
            kind=self.saved_kind,
            target=form.instance,
            by=user_of(request),
            at=timezone.now(),
            data=data,
        )

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        publish(kind=self.deleted_kind, target=obj, by=user_of(request), at=timezone.now())
        super().delete_model(request, obj)


class Retire(ReasonAction):
    name = "retire"
    label = "Retire"

    def outlook(
        self, rows: Sequence[ApprovalGroup], user: User, at: datetime
    ) -> list[tuple[bool, str]]:
        if not may_change_groups(user):
            return [(False, "you do not have permission to change groups.")] * len(rows)
        effects = []
        for row in rows:
            effects.append(
                (False, "already retired.")
                if row.retired_at
                else (True, plan_retirement(row, at).text)
            )
        return effects

    def act(self, row: ApprovalGroup, *, by: User, at: datetime, reason: str, **_: Any) -> str:
        return f"{row}: {retire_group(group=row, by=by, at=at, reason=reason).text}"


class ApprovalGroupForm(forms.ModelForm):
    """A group in which someone can sign."""

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        is_empty = not cleaned.get("role") and not cleaned.get("members")
        if is_empty and not {"role", "members"}.intersection(self.errors):
            text = "Choose “Members”, a “Role”, or both: otherwise, no one can sign."
            self.add_error("members", text)
        return cleaned


@admin.register(ApprovalGroup)
class ApprovalGroupAdmin(_WithEvents, LongListAdmin):
    """A group with signatures or delegations is retired, because the history names it."""

    form = ApprovalGroupForm
    about = "People of whom one signs for all. Approval rules name the groups that must sign."
    document = "approvals"
    saved_kind = "approval_group.saved"
    deleted_kind = "approval_group.deleted"
    actions = [Retire()]
    list_display = ["name", "experiment", "role", "retired_at"]
    list_filter = ["experiment", "role", ("retired_at", EMPTY)]
    readonly_fields = ["retired_at"]
    search_fields = ["name"]
    column_titles = {"role": "everyone with the role"}
    empty_choices = {"experiment": "all experiments"}
    autocomplete_fields = ["members"]
    record_actions = ("retire",)

    def get_fields(self, request: HttpRequest, obj: ApprovalGroup | None = None) -> list[Any]:
        fields = ["name", "experiment", "role", "members"]
        return [*fields, "retired_at"] if obj else fields

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Forbid changes of a retired group."""
        return super().has_change_permission(request, obj) and not (obj and obj.retired_at)

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> tuple[Any, Any, Any, Any]:
        """Explain, for a group in use, that it can be retired."""
        deleted, counts, needed, protected = super().get_deleted_objects(objs, request)
        uses = []
        for model in (Delegation, Signature):
            uses.append(Exists(model.objects.filter(group=OuterRef("pk"))))
        used = ApprovalGroup.objects.filter(uses[0] | uses[1], pk__in=[group.pk for group in objs])
        if used:
            advice = "has signatures or delegations. Use the action “Retire…” of the list instead."
            needed = set()
            protected = [f"{group} {advice}" for group in used]
        return deleted, counts, needed, protected


class ApprovalRuleForm(forms.ModelForm):
    """A rule that asks for something, and is the only one for its requests."""

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        days = cleaned.get("remind_after_days")
        if "groups" not in self.errors and not cleaned.get("groups") and days == REMIND_AFTER_DAYS:
            self.add_error(
                "groups",
                "Choose the groups that must sign. A rule without groups only changes the days "
                f"until a reminder, which are {REMIND_AFTER_DAYS} without a rule.",
            )
        is_moved = {"workflow", "experiment"}.intersection(self.changed_data)
        if (self.instance.pk is None or is_moved) and not self.errors:
            self._refuse_second_rule(cleaned)
        return cleaned

    def _refuse_second_rule(self, cleaned: dict[str, Any]) -> None:
        same = ApprovalRule.objects.filter(
            workflow=cleaned.get("workflow"), experiment=cleaned.get("experiment")
        )
        other = same.exclude(pk=self.instance.pk).first()
        if other:
            text = f"There is already a rule for {other}. Change that one, or choose others here."
            self.add_error("workflow", text)


@admin.register(ApprovalRule)
class ApprovalRuleAdmin(_WithEvents):
    """The groups of all matching rules must sign. Without a matching rule, one approver must."""

    form = ApprovalRuleForm
    about = (
        "Which groups must sign which requests. The groups of all matching rules must sign; "
        "without a matching rule, one approver must."
    )
    document = "approvals"
    saved_kind = "approval_rule.saved"
    deleted_kind = "approval_rule.deleted"
    list_display = ["__str__", "group_names", "remind_after_days", "enabled"]
    list_filter = ["enabled", "experiment"]
    list_select_related = ["workflow", "experiment"]
    list_display_links = ["__str__"]
    search_fields = ["workflow__key", "experiment__key", "groups__name"]
    fieldsets = (
        ("Requests", {"fields": ("workflow", "experiment")}),
        ("Signatures", {"fields": ("groups", "remind_after_days", "enabled")}),
    )
    labels = {
        "workflow": "Workflow type",
        "remind_after_days": "Days until a reminder",
        "enabled": "In force",
    }
    help_texts = {
        "groups": (
            "All of them must sign. Without groups, the rule only changes the days until a "
            "reminder."
        ),
        "enabled": "Otherwise the rule is kept, and asks for nothing.",
    }
    column_titles = {"enabled": "in force", "remind_after_days": "days until a reminder"}
    filter_titles = {"enabled": "in force"}
    empty_choices = {"experiment": "all experiments"}

    @admin.display(description="groups")
    def group_names(self, rule: ApprovalRule) -> str:
        return ", ".join(group.name for group in rule.groups.all()) or "–"

    def get_queryset(self, request: HttpRequest) -> QuerySet[ApprovalRule]:
        return super().get_queryset(request).prefetch_related("groups")
