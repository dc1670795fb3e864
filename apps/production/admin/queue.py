"""Shares in the back office, written by the service; scores and use are to look at only."""

from typing import Any

from django import forms
from django.contrib import admin
from django.http import HttpRequest
from django.utils import timezone

from apps.accounts.admin import user_of
from apps.core.admin import PortalAdmin, ReadOnlyAdmin
from apps.production.domain.queue.rescoring import read_shares
from apps.production.domain.queue.shares import set_shares
from apps.production.domain.reasons import MAX_REASON
from apps.production.models import MAX_WEIGHT, ExperimentShare, QueueEntry, QueueState, ShareUse
from apps.production.permissions import may_set_shares


class ShareForm(forms.ModelForm):
    """A weight, and why."""

    weight = forms.IntegerField(min_value=0, max_value=MAX_WEIGHT, help_text="Beside those of the others.")
    reason = forms.CharField(max_length=MAX_REASON, widget=forms.Textarea(attrs={"rows": 2}))

    class Meta:
        model = ExperimentShare
        fields = ["experiment", "weight"]

    def clean(self) -> dict[str, Any]:
        """Refuse to leave everybody without a share, as the service does."""
        data: dict[str, Any] = dict(super().clean() or {})
        experiment = data.get("experiment") or self.instance.experiment_id and self.instance.experiment
        if experiment and "weight" in data:
            weights = {**read_shares().weights, experiment.pk: data["weight"]}
            if not any(weights.values()):
                raise forms.ValidationError("At least one experiment must have a share.")
        return data


@admin.register(ExperimentShare)
class ExperimentShareAdmin(PortalAdmin):
    """An experiment without a row has the usual weight; a row is never deleted."""

    form = ShareForm
    never = ("delete",)
    list_display = ["experiment", "weight", "by", "at"]
    search_fields = ["experiment__key", "by"]

    def get_readonly_fields(self, request: HttpRequest, obj: ExperimentShare | None = None) -> tuple[str, ...]:
        return ("experiment",) if obj else ()

    def has_add_permission(self, request: HttpRequest) -> bool:
        return may_set_shares(user_of(request)) and super().has_add_permission(request)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return may_set_shares(user_of(request)) and super().has_change_permission(request, obj)

    def save_model(self, request: HttpRequest, obj: ExperimentShare, form: Any, change: bool) -> None:
        """Let the service write the row, its event and the scores."""
        given = form.cleaned_data
        weights = {obj.experiment_id: given["weight"]}
        set_shares(weights=weights, by=user_of(request), at=timezone.now(), reason=given["reason"])


@admin.register(QueueEntry)
class QueueEntryAdmin(ReadOnlyAdmin):
    list_display = ["request", "is_queued", "points", "hand_points", "hand_by", "size_basis", "sized_at"]
    list_filter = ["is_queued"]
    search_fields = ["request__key"]


@admin.register(QueueState)
class QueueStateAdmin(ReadOnlyAdmin):
    list_display = ["version", "change", "changed_by", "changed_at", "scored_at", "starts", "starts_days"]


@admin.register(ShareUse)
class ShareUseAdmin(ReadOnlyAdmin):
    list_display = ["experiment", "core_seconds", "days", "as_of"]
    search_fields = ["experiment__key"]
