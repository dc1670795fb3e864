"""The form of a known error."""

from typing import Any, ClassVar

from django import forms
from django.db.models import Q

from apps.accounts.models import Experiment, User
from apps.accounts.permissions import scope_of
from apps.core.web.moments import LocalMomentField
from apps.diagnosis.models import KnownError


class KnownErrorForm(forms.ModelForm):
    """All fields of a known error, and the reason for the change.

    `base` is the version that the user has seen.
    """

    reason = forms.CharField(
        max_length=4000,
        required=False,
        widget=forms.Textarea(attrs={"rows": 2}),
        help_text="Why; shown in the history.",
    )
    link = forms.URLField(
        required=False, assume_scheme="https", help_text="Ticket, documentation or status page."
    )
    base = forms.IntegerField(min_value=0, widget=forms.HiddenInput)

    class Meta:
        model = KnownError
        fields: ClassVar[list[str]] = [
            "id",
            "title",
            "regex",
            "example",
            "category",
            "service",
            "role",
            "advice",
            "instructions",
            "experiment",
            "owner",
            "link",
            "expires_at",
            "passive",
            "enabled",
        ]
        field_classes: ClassVar[dict[str, type[forms.Field]]] = {"expires_at": LocalMomentField}
        widgets: ClassVar[dict[str, forms.Widget]] = {
            "regex": forms.Textarea(attrs={"rows": 2, "class": "mono", "spellcheck": "false"}),
            "example": forms.Textarea(attrs={"rows": 2, "class": "mono", "spellcheck": "false"}),
            "instructions": forms.Textarea(attrs={"rows": 2}),
            "expires_at": forms.DateTimeInput(
                attrs={"type": "datetime-local"}, format="%Y-%m-%dT%H:%M"
            ),
        }

    def __init__(self, *args: Any, by: User, **kwargs: Any) -> None:
        """Offer the experiments in which the user has a role, and that of the known error."""
        super().__init__(*args, **kwargs)
        if scope_of(by).sees_all:
            own = Q()
        else:
            own = Q(pk__in=scope_of(by).experiments)
        present = Q(pk=self.instance.experiment_id)
        experiments = Experiment.objects.filter(own | present)
        self.fields["experiment"].queryset = experiments  # type: ignore[attr-defined]
        self.fields["example"].strip = False  # type: ignore[attr-defined]
        self.fields["regex"].strip = False  # type: ignore[attr-defined]
        if not self.instance._state.adding:
            del self.fields["id"]

    @property
    def known_error(self) -> str:
        """Return the ID of the known error."""
        return str(self.cleaned_data.get("id") or self.instance.pk)

    def keep_errors_of(self, *fields: str) -> None:
        """Drop the errors of all other fields, which a preview does not need."""
        for name in [*self.errors]:
            if name not in fields:
                del self.errors[name]

    def values(self) -> dict[str, Any]:
        """Return the fields as plain data, in the form that changes store."""
        values = {}
        for name, value in self.cleaned_data.items():
            if name not in {"id", "reason", "base"}:
                values[name] = value
        experiment = values.get("experiment")
        expires_at = values.get("expires_at")
        values["experiment"] = experiment.key if experiment else ""
        values["expires_at"] = expires_at.isoformat() if expires_at else None
        return values
