"""Requests in the back office: to look at, with the moves of the workflow as actions."""

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils import timezone

from apps.core.admin import ReadOnlyAdmin
from apps.core.errors import DomainError
from apps.production import approval_admin, services  # noqa: F401  # it registers more
from apps.production.enums import Verb
from apps.production.models import (
    Comment,
    Hold,
    OutputReport,
    Request,
    RequestCounter,
    RequestRevision,
    RequestTemplate,
    Stage,
    WorkflowType,
    WorkflowVersion,
)
from apps.production.priority import admin as priority_admin  # noqa: F401  # it registers more
from apps.production.workflow_types import newest_version, save_workflow
from apps.production.workflows.builtin import STATES, builtin_texts
from apps.production.workflows.declaration import DeclarationError, read_declaration


class StageInline(admin.TabularInline):
    model = Stage
    fields = ["position", "name", "release", "configuration", "events", "jobs", "memory_bytes", "wall_seconds"]
    extra = 0
    can_delete = False

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


def _action(verb: Verb) -> Any:
    def act(admin: "RequestAdmin", request: HttpRequest, chosen: QuerySet[Request]) -> HttpResponse | None:
        return admin.move(request, chosen, verb, verb.name.lower())

    return act


@admin.register(Request)
class RequestAdmin(ReadOnlyAdmin):
    """Every field is read-only here: requests are written on their form, and moved by the actions below.

    The actions ask for a reason and call the same services as the pages, as the person who is logged in: an admin who
    is no approver is told so.
    """

    list_display = ["key", "title", "experiment", "state", "priority", "deadline", "created_by", "created_at"]
    list_filter = ["state", "experiment", "requested_priority"]
    search_fields = ["key", "title"]
    list_select_related = ["experiment", "created_by"]
    ordering = ["-id"]
    inlines = [StageInline]

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        return {
            verb.name.lower(): (_action(verb), verb.name.lower(), f"{verb.label}…")
            for verb in services.SERVICES
            if verb not in {Verb.SUBMIT, Verb.SUPERSEDE}
        }

    def move(self, request: HttpRequest, chosen: QuerySet[Request], verb: Verb, action: str) -> HttpResponse | None:
        """Ask for the reason; then move each chosen request by itself, and tell what became of it."""
        if "reason" not in request.POST:
            context = {
                **self.admin_site.each_context(request),
                "title": f"{verb.label}: say why",
                "chosen": chosen,
                "verb": verb,
                "action": action,
                "checkbox": ACTION_CHECKBOX_NAME,
                "opts": self.model._meta,
            }
            return TemplateResponse(request, "production/admin_reason.html", context)
        for one in chosen:
            try:
                moved = services.SERVICES[verb](
                    request=one, by=request.user, at=timezone.now(), reason=request.POST["reason"]
                )
            except DomainError as error:
                text = str(error)
                self.message_user(request, text if one.key in text else f"{one}: {text}", messages.ERROR)
            else:
                self.message_user(request, f"{moved} is now “{moved.get_state_display()}”.", messages.SUCCESS)
        return None


@admin.register(RequestCounter)
class RequestCounterAdmin(ReadOnlyAdmin):
    list_display = ["experiment", "last"]


@admin.register(Hold)
class HoldAdmin(ReadOnlyAdmin):
    list_display = ["__str__", "reason", "by", "at", "lifted_by", "lifted_at"]
    list_select_related = ["experiment", "by", "lifted_by"]


@admin.register(Comment)
class CommentAdmin(ReadOnlyAdmin):
    list_display = ["request", "place", "by", "at", "resolved_at", "withdrawn_at"]
    list_select_related = ["request", "by"]
    search_fields = ["request__key", "text"]


@admin.register(RequestTemplate)
class RequestTemplateAdmin(ReadOnlyAdmin):
    list_display = ["name", "experiment", "workflow_key", "workflow_number", "saved_at", "saved_by"]
    list_filter = ["experiment"]
    list_select_related = ["experiment"]


@admin.register(RequestRevision)
class RequestRevisionAdmin(ReadOnlyAdmin):
    list_display = ["request", "version", "at", "by", "is_submitted"]
    list_select_related = ["request"]


@admin.register(OutputReport)
class OutputReportAdmin(ReadOnlyAdmin):
    list_display = ["key", "stage", "files_in", "events_in", "files_out", "events_out", "by", "at"]
    list_select_related = ["stage"]


class DeclarationForm(forms.ModelForm):
    """The declaration of the newest version; a changed one becomes the next version."""

    declaration = forms.CharField(
        widget=forms.Textarea(attrs={"rows": 30, "cols": 100, "spellcheck": "false"}),
        help_text="In YAML, as docs/workflows.md says. Requests that are there keep the version they were made with.",
        strip=False,
    )

    class Meta:
        model = WorkflowType
        fields = ["key", "experiment", "enabled"]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        newest = newest_version(self.instance.key) if self.instance.pk else None
        self.fields["declaration"].initial = newest.declaration if newest else builtin_texts()["general"]

    def clean_declaration(self) -> str:
        text = str(self.cleaned_data["declaration"]).replace("\r\n", "\n")
        try:
            read_declaration(text, key=self.cleaned_data.get("key", "new"), states=STATES)
        except DeclarationError as error:
            raise forms.ValidationError([f"{place}: {what}" for place, what in error.problems]) from None
        return text


@admin.register(WorkflowType)
class WorkflowTypeAdmin(admin.ModelAdmin):
    """A type is never deleted, as requests were made with it: take it out of use instead."""

    form = DeclarationForm
    list_display = ["key", "experiment", "enabled"]
    list_filter = ["enabled", "experiment"]
    list_select_related = ["experiment"]

    def get_readonly_fields(self, request: HttpRequest, obj: WorkflowType | None = None) -> tuple[str, ...]:
        return ("key",) if obj else ()

    def save_model(self, request: HttpRequest, obj: WorkflowType, form: Any, change: bool) -> None:
        obj.save()
        save_workflow(
            workflow_type=obj, declaration=form.cleaned_data["declaration"], by=request.user, at=timezone.now()
        )

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


@admin.register(WorkflowVersion)
class WorkflowVersionAdmin(ReadOnlyAdmin):
    list_display = ["type", "number", "title", "created_at", "created_by"]
    list_filter = ["type"]
    list_select_related = ["type"]
