"""Fair shares in the admin. Their domain function saves them."""

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.http import HttpRequest
from django.utils import timezone

from apps.accounts.admin import user_of
from apps.core.admin import PortalAdmin
from apps.production.domain.experiment_shares import read_shares
from apps.production.domain.priority.shares import set_shares, warning_about_zero
from apps.production.domain.reasons import MAX_REASON
from apps.production.models import DEFAULT_WEIGHT, MAX_WEIGHT, ExperimentShare
from apps.production.permissions import may_set_shares


class ShareForm(forms.ModelForm):
    """A weight and the reason for it."""

    weight = forms.IntegerField(
        min_value=0,
        max_value=MAX_WEIGHT,
        initial=DEFAULT_WEIGHT,
        help_text=(
            "Relative to the other experiments, each of which has 100 unless it is listed here. "
            "With 0, its requests rank lower, but still start; to stop them, "
            "put the experiment on hold."
        ),
    )
    reason = forms.CharField(
        max_length=MAX_REASON,
        widget=forms.Textarea(attrs={"rows": 2}),
        help_text="Members of the experiments can read it.",
    )

    class Meta:
        model = ExperimentShare
        fields = ["experiment", "weight"]

    def clean(self) -> dict[str, Any]:
        """Require a share for at least one experiment, as the domain function does."""
        data: dict[str, Any] = dict(super().clean() or {})
        experiment = (
            data.get("experiment") or self.instance.experiment_id and self.instance.experiment
        )
        if experiment and "weight" in data:
            weights = {**read_shares().weights, experiment.pk: data["weight"]}
            if not any(weights.values()):
                raise forms.ValidationError("At least one experiment must have a share.")
        return data


@admin.register(ExperimentShare)
class ExperimentShareAdmin(PortalAdmin):
    """Rows are not deleted. An experiment without a row has the default weight."""

    about = (
        "The share of each experiment in the queue, as a weight relative to the others. An "
        "experiment that is not listed has a weight of 100."
    )
    list_title = "Shares of experiments"
    record_name = "share"
    ordering = ["experiment__key"]
    column_titles = {"by": "set by", "at": "set"}
    document = "priority"
    form = ShareForm
    never = ("delete",)
    list_display = ["experiment", "weight", "by", "at"]
    list_select_related = ["experiment"]
    search_fields = ["experiment__key", "by"]

    def get_readonly_fields(
        self, request: HttpRequest, obj: ExperimentShare | None = None
    ) -> tuple[str, ...]:
        return ("experiment",) if obj else ()

    def has_add_permission(self, request: HttpRequest) -> bool:
        return may_set_shares(user_of(request)) and super().has_add_permission(request)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return may_set_shares(user_of(request)) and super().has_change_permission(request, obj)

    def save_model(
        self, request: HttpRequest, obj: ExperimentShare, form: Any, change: bool
    ) -> None:
        """Save the row, its event and the scores."""
        cleaned = form.cleaned_data
        weights = {obj.experiment_id: cleaned["weight"]}
        set_shares(
            weights=weights, by=user_of(request), at=timezone.now(), reason=cleaned["reason"]
        )
        if cleaned["weight"] == 0:
            messages.warning(request, warning_about_zero([obj.experiment.name]))
