"""Catalogues in the admin; their answers are read-only."""

from typing import Any

from django import forms
from django.contrib import admin
from django.http import HttpRequest

from apps.core.admin import PortalAdmin, register_read_only
from apps.core.web.form_errors import name_field_in_errors
from apps.core.web.plugin_field import PluginField
from apps.datasets.catalogues.base import CatalogueError
from apps.datasets.catalogues.registry import CATALOGUES
from apps.datasets.domain.look_ups import open_adapter
from apps.datasets.domain.staging_options import staging_target
from apps.datasets.models import (
    Catalogue,
    FileTotals,
    InputFile,
    KnownDataset,
    MadeDataset,
    OutputFile,
    OutputTotals,
    StagingRequest,
)


class CatalogueForm(forms.ModelForm):
    """The form of a catalogue: what can be checked without asking it is checked."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["kind"] = PluginField(
            CATALOGUES, help_text="What it is; the kind decides which options it has."
        )
        name_field_in_errors(self.fields["kind"], "kind")

    def clean_options(self) -> dict[str, Any]:
        options = self.cleaned_data["options"] or {}
        if not isinstance(options, dict):
            raise forms.ValidationError('Enter an object, such as {"name": "value"}.')
        return options

    def clean(self) -> dict[str, Any]:
        values = super().clean() or self.cleaned_data
        if not self.errors:
            row = Catalogue(
                kind=values["kind"],
                base_url=values["base_url"],
                credential_file=values["credential_file"],
                options=values["options"],
            )
            try:
                open_adapter(row)
                staging_target(row)
            except CatalogueError as error:
                raise forms.ValidationError(str(error)) from error
        return values


@admin.register(Catalogue)
class CatalogueAdmin(PortalAdmin):
    about = "Where the datasets of requests are looked up."
    document = "catalogues"
    form = CatalogueForm
    labels = {"active": "In use"}
    help_texts = {
        "name": "Requests name it in the field of their input dataset.",
        "options": "As JSON; which there are depends on the kind, see docs/catalogues.md.",
        "active": "Otherwise nothing is looked up there.",
    }
    column_titles = {"active": "in use", "base_url": "address", "answered_at": "last answer"}
    filter_titles = {"active": "in use"}
    list_display = ["name", "kind", "base_url", "active", "answered_at", "error"]
    list_filter = ["kind", "active"]
    search_fields = ["name", "base_url"]
    instead_of_deleting = "Untick “Active” instead."

    def get_fieldsets(self, request: HttpRequest, obj: Catalogue | None = None) -> Any:
        """Fold what most catalogues do without, and show its answers once it can have any."""
        sections: list[Any] = [
            (None, {"fields": ("name", "kind", "base_url", "active")}),
            (
                "Sign-in and options",
                {"fields": ("credential_file", "options"), "classes": ("collapse",)},
            ),
        ]
        if obj:
            sections.append(("Answers", {"fields": ("answered_at", "error")}))
        return sections

    def get_readonly_fields(self, request: HttpRequest, obj: Catalogue | None = None) -> list[str]:
        """Show its answers once it can have any."""
        return ["answered_at", "error"] if obj else []


register_read_only(
    KnownDataset,
    "name catalogue exists files files_on_disk files_on_tape_only files_without_location "
    "unlocated_reason is_frozen events size_bytes answered_at is_waiting last_error",
    search="name",
    filters=["catalogue", "exists", "is_waiting"],
)
register_read_only(
    StagingRequest,
    "dataset request catalogue storage state files_on_disk files_waiting files_stuck "
    "catalogue_error last_error progress_at finish_by requested_by",
    search="dataset request__key",
    filters=["catalogue", "state"],
)
register_read_only(
    MadeDataset,
    "name request catalogue chosen file_count state last_error made_at requested_by requested_at",
    search="name request__key",
    filters=["catalogue", "state"],
)
register_read_only(
    InputFile,
    "name stage number state is_doubled is_withdrawn reason decided_by changed_at",
    search="stage__request__key name",
    filters=["state"],
)
register_read_only(OutputFile, "name stage size_bytes events key counts at by", search="name")
register_read_only(
    FileTotals,
    "stage source files waiting taken done failed given_up doubled checked_at",
    search="stage__request__key",
)
register_read_only(OutputTotals, "stage files revision", search="stage__request__key")
