"""Thresholds in the admin. Each change is a row, so the list is the history.

All other tables are read-only.
"""

from typing import Any

from django import forms
from django.contrib import admin
from django.http import HttpRequest
from django.utils import timezone

from apps.accounts.admin import user_of
from apps.core.admin import PortalAdmin, register_read_only
from apps.core.web import documentation
from apps.core.web.text_fields import with_links
from apps.quality.checks.registry import checks
from apps.quality.domain.thresholds import problems_of, save_thresholds
from apps.quality.models import (
    ExternalResult,
    HistogramPair,
    QualityResult,
    QualityRun,
    Thresholds,
    Waiver,
)


class ThresholdsForm(forms.ModelForm):
    """New limits of a check."""

    check_name = forms.ChoiceField(label="Check")

    class Meta:
        model = Thresholds
        fields = ["check_name", "workflow", "experiment", "effect", "unknown", "limits", "reason"]
        labels = {"workflow": "Workflow type", "effect": "If it fails", "unknown": "If unknown"}
        widgets = {"reason": forms.Textarea(attrs={"rows": 3})}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field = self.fields.get("check_name")
        if isinstance(field, forms.ChoiceField):
            field.choices = [(name, f"{check.title} ({name})") for name, check in checks().items()]
            help_text = "Limits are described in docs/data-quality.md."
            field.help_text = with_links(help_text, documentation.titles())

    def clean(self) -> dict[str, Any]:
        data: dict[str, Any] = super().clean() or {}
        limits = data.get("limits", {})
        reason = data.get("reason", "")
        if "check_name" in data:
            for field, messages in problems_of(
                check=data["check_name"], limits=limits or {}, reason=reason
            ).items():
                if field not in self.errors:
                    self.add_error(field, messages)
        return data


@admin.register(Thresholds)
class ThresholdsAdmin(PortalAdmin):
    """Rows are only added. To revoke one, add a row with the effect “as in the next wider row”."""

    about = (
        "When a check of the output fails, and what follows. Rows are only added: to revoke one, "
        "add a row with the effect “as in the next wider row”."
    )
    document = "data-quality"
    list_title = "Quality thresholds"
    record_name = "threshold"
    empty_choices = {"experiment": "all experiments", "workflow": "all workflow types"}
    column_titles = {"check_name": "check", "effect": "if it fails", "unknown": "if unknown"}
    filter_titles = {"check_name": "check", "workflow": "workflow type"}
    fieldsets = (
        ("Applies to", {"fields": ("check_name", "workflow", "experiment")}),
        ("Limits", {"fields": ("limits", "effect", "unknown", "reason")}),
    )
    form = ThresholdsForm
    list_display = [
        "check_name",
        "workflow",
        "experiment",
        "effect",
        "unknown",
        "limits",
        "at",
        "by",
        "reason",
    ]
    list_filter = ["check_name", "experiment", "workflow"]
    show_full_result_count = False
    never = ("change", "delete")

    def save_model(self, request: HttpRequest, obj: Thresholds, form: Any, change: bool) -> None:
        fields = form.cleaned_data
        fields |= {"check": fields.pop("check_name"), "limits": fields["limits"] or {}}
        row = save_thresholds(**fields, by=user_of(request), at=timezone.now())
        obj.pk = row.pk
        obj.at = row.at
        obj.by = row.by


register_read_only(
    QualityRun,
    "request number state requested_at requested_by evaluated_at",
    search="request__key",
    filters=["state"],
    about="A run of all checks on the output of a request.",
)
register_read_only(
    QualityResult,
    "run stage_name check_name subject outcome value threshold why",
    search="run__request__key",
    filters=["outcome", "check_name"],
    ordering=["-pk"],
    about="The result of a check of the output.",
)
register_read_only(
    Waiver,
    "request stage_name check_name subject by at reason withdrawn_at",
    search="request__key",
    ordering=["-pk"],
)
register_read_only(HistogramPair, "name stage at by")
register_read_only(ExternalResult, "name request outcome at by", search="request__key name")
