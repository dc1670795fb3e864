"""Requests and workflow types in the admin.

Requests are read-only, with the moves of the workflow as actions.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django import forms
from django.contrib import admin
from django.core.validators import RegexValidator
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html

from apps.accounts.admin import user_of
from apps.accounts.models import User
from apps.core.admin import PortalAdmin, ReadOnlyAdmin
from apps.core.web.text_fields import NumberedText
from apps.production.admin.actions import ReasonAction
from apps.production.domain.actors import may
from apps.production.domain.approvals.inbox import rights_to_sign
from apps.production.domain.lifecycle.guards import may_offer
from apps.production.domain.lifecycle.moves import MOVE_FUNCTIONS
from apps.production.domain.lifecycle.transitions import transitions_from
from apps.production.domain.types.declaration import (
    DeclarationError,
    builtin_texts,
    read_declaration,
)
from apps.production.domain.types.faults import NOT_A_NAME
from apps.production.domain.types.versions import newest_version, save_workflow
from apps.production.enums import Actor, Verb
from apps.production.models import Request, Stage, WorkflowType


class StageInline(admin.TabularInline):
    model = Stage
    fields = [
        "position",
        "name",
        "release",
        "configuration",
        "events",
        "jobs",
        "memory_bytes",
        "wall_seconds",
        "retry_memory_bytes",
        "retry_wall_seconds",
    ]


class Move(ReasonAction):
    def __init__(self, verb: Verb) -> None:
        self.verb = verb
        self.name = verb.name.lower()
        self.label = verb.label
        if verb is Verb.SUPERSEDE:
            self.extra = "Key of the request that replaces it"
        super().__init__()

    def act(self, row: Request, *, extra: str, **fields: Any) -> str:
        if self.verb is Verb.SUPERSEDE:
            fields["successor"] = Request.objects.filter(key=extra).first()
        moved = MOVE_FUNCTIONS[self.verb](request=row, **fields)
        return f"{moved} is now “{moved.get_state_display()}”."

    def outlook(self, rows: Sequence[Request], user: User, at: datetime) -> list[tuple[bool, str]]:
        """Predict the outcome from the transition table. The domain function decides."""
        signable_now = set(rights_to_sign(user, at))
        return [self._outlook(row, user, signs=row.pk in signable_now) for row in rows]

    def _outlook(self, row: Request, user: User, *, signs: bool) -> tuple[bool, str]:
        now = f"“{row.get_state_display()}”"
        steps = []
        for step in transitions_from(row.state, self.verb):
            if may_offer(step, row):
                steps.append(step)
        if not steps:
            return False, f"its state is {now}."
        who = steps[0].actor
        signs = signs and who in {Actor.SIGNER, Actor.DECIDER}
        if not signs and (
            who is Actor.SIGNER
            or not may(user, Actor.APPROVER if who is Actor.DECIDER else who, row)
        ):
            return False, f"required role: {who.label}."
        return (
            True,
            (
                f"{now} becomes "
                f"“{steps[0].new.label}”{', with a reason' if steps[0].reason_needed else ''}."
            ),
        )


@admin.register(Request)
class RequestAdmin(ReadOnlyAdmin):
    """Requests are edited on their form, not here.

    Actions move them with the permissions of the logged-in user.
    """

    list_display = [
        "key",
        "title",
        "experiment",
        "state",
        "level",
        "deadline",
        "created_by",
    ]
    list_filter = ["state", "experiment", "requested_priority", "workflow__type", "deadline"]
    search_fields = ["key", "title", "campaign", "created_by__username"]
    changed_on = ("Requests", "production:request-list")
    ordering = ["-pk"]
    filter_titles = {"requested_priority": "requested priority", "workflow__type": "workflow type"}
    date_hierarchy = "created_at"
    inlines = [StageInline]
    readonly_fields = ["events"]
    actions = [Move(verb) for verb in MOVE_FUNCTIONS]

    @admin.display(description="Priority", ordering="priority_class")
    def level(self, request: Request) -> str:
        return request.level or "not set"

    def get_queryset(self, request: HttpRequest) -> QuerySet[Request]:
        """Join related rows for the page of one request, but not for the list.

        For the list, the joins would be slow to plan.
        """
        requests = super().get_queryset(request)
        if (
            request.resolver_match
            and request.resolver_match.url_name == "production_request_changelist"
        ):
            return requests
        others = (
            "workflow__type",
            "submitted_by",
            "approved_by",
            "closed_by",
            "superseded_by",
            "cloned_from",
        )
        return requests.select_related("experiment", "created_by", *others)

    @admin.display(description="activity")
    def events(self, request: Request) -> str:
        address = reverse("admin:core_event_changelist")
        return format_html('<a href="{}?q={}">Events of {}</a>', address, request.key, request.key)


class DeclarationForm(forms.ModelForm):
    """The declaration of the newest version. A change creates the next version."""

    declaration = forms.CharField(
        widget=NumberedText(rows=30),
        help_text="YAML, see docs/workflows.md. Existing requests keep their version.",
        strip=False,
    )

    class Meta:
        model = WorkflowType
        fields = ["key", "experiment", "enabled"]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "key" in self.fields:
            # Django's slug validators allow more than the help says and have their own message.
            is_name = RegexValidator(r"^[a-z0-9_]{1,40}$", NOT_A_NAME, code="not_a_name")
            self.fields["key"].validators = [is_name]
        newest = None
        if self.instance.pk:
            newest = newest_version(self.instance.key)
        if newest:
            self.fields["declaration"].initial = newest.declaration
        else:
            self.fields["declaration"].initial = builtin_texts()["general"]

    def clean_declaration(self) -> str:
        text = str(self.cleaned_data["declaration"]).replace("\r\n", "\n")
        try:
            read_declaration(text, key=self.cleaned_data.get("key", "new"))
        except DeclarationError as error:
            raise forms.ValidationError(
                [
                    what if place == "declaration" else f"{place}: {what}"
                    for place, what in error.problems
                ]
            ) from None
        return text


@admin.register(WorkflowType)
class WorkflowTypeAdmin(PortalAdmin):
    """A type is disabled instead of deleted, because requests refer to it."""

    about = "The stages and fields of a kind of request. Each change is a new version."
    document = "workflows"
    form = DeclarationForm
    never = ("delete",)
    labels = {"enabled": "Offered"}
    column_titles = {"enabled": "offered"}
    filter_titles = {"enabled": "offered"}
    empty_choices = {"experiment": "all experiments"}
    list_display = ["key", "experiment", "enabled"]
    list_filter = ["enabled", "experiment"]
    search_fields = ["key"]

    def get_readonly_fields(
        self, request: HttpRequest, obj: WorkflowType | None = None
    ) -> tuple[str, ...]:
        return ("key",) if obj else ()

    def save_model(self, request: HttpRequest, obj: WorkflowType, form: Any, change: bool) -> None:
        obj.save()
        save_workflow(
            workflow_type=obj,
            declaration=form.cleaned_data["declaration"],
            by=user_of(request),
            at=timezone.now(),
        )
