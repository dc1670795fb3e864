"""The form of a known error."""

from typing import Any, ClassVar

from django import forms
from django.db.models import Q

from apps.accounts.models import Experiment, User
from apps.accounts.permissions import scope_of
from apps.core.web.moments import LocalMomentField
from apps.diagnosis.enums import Category
from apps.diagnosis.models import KnownError
from apps.statusboard.models import Service

#: Stands for the program of the job in known errors: no service failed.
NO_SERVICE = "program"


def service_choices() -> list[tuple[str, Any]]:
    """Return the services of the status board, and what known errors name besides, or none."""
    on_board = []
    for service in Service.objects.order_by("name"):
        on_board.append((service.slug, f"{service.name} ({service.slug})"))
    known = {NO_SERVICE, *(slug for slug, _ in on_board)}
    named = KnownError.objects.order_by("service").values_list("service", flat=True).distinct()
    others = [(name, name) for name in named if name not in known]
    choices: list[tuple[str, Any]] = [("", "---------"), (NO_SERVICE, "None: the job's program")]
    if on_board:
        choices.append(("On the status board", on_board))
    if others:
        choices.append(("Not on the status board", others))
    return choices


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
    service = forms.ChoiceField(
        help_text=(
            "What failed. Only a service of the status board can have outages, which then explain "
            "the failure."
        )
    )

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
        help_texts: ClassVar[dict[str, str]] = {
            "id": "Permanent, in capitals, for example SAMWEB-TIMEOUT. Verdicts name it.",
            "title": "What went wrong, in a few words.",
            "category": (
                "Who has to act. Service and site: the people who run it. Experiment code, "
                "configuration and data: the experiment. Resource: more memory or time is needed. "
                "User: someone cancelled the job."
            ),
            "role": (
                "A cause decides the verdict, a generic error only if there is no cause. Symptoms "
                "and consequences follow from another error. Noise is ignored."
            ),
            "advice": (
                "Retry: submit the job again. Debug: read its log first. Hold: do not retry until "
                "it is fixed. Escalate: notify the owner of the service."
            ),
            "example": (
                "A line of a log that the pattern must match. “Try pattern” tests it on this line "
                "and on recent logs, and saves nothing."
            ),
            "enabled": "Untick to retire it: its pattern then matches nothing. Verdicts stay.",
        }
        widgets: ClassVar[dict[str, forms.Widget]] = {
            "regex": forms.Textarea(attrs={"rows": 2, "class": "mono", "spellcheck": "false"}),
            "example": forms.Textarea(attrs={"rows": 2, "class": "mono", "spellcheck": "false"}),
            "instructions": forms.Textarea(attrs={"rows": 2}),
            "expires_at": forms.DateTimeInput(
                attrs={"type": "datetime-local"}, format="%Y-%m-%dT%H:%M"
            ),
        }

    def __init__(self, *args: Any, by: User, **kwargs: Any) -> None:
        """Offer the experiments in which the user has a role, and the known error's own."""
        super().__init__(*args, **kwargs)
        experiments = Experiment.objects.all()
        if not scope_of(by).sees_all:
            own = Q(pk__in=scope_of(by).experiment_keys)
            experiments = experiments.filter(own | Q(pk=self.instance.experiment_id))
        self.fields["experiment"].queryset = experiments  # type: ignore[attr-defined]
        self.fields["service"].choices = service_choices()  # type: ignore[attr-defined]
        self.fields["example"].strip = False  # type: ignore[attr-defined]
        self.fields["regex"].strip = False  # type: ignore[attr-defined]
        if not self.instance._state.adding:
            del self.fields["id"]

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        is_of_service = cleaned.get("category") in {Category.SERVICE, Category.SITE}
        if is_of_service and cleaned.get("service") == NO_SERVICE:
            self.add_error("service", "Choose what failed, or another category.")
        return cleaned

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
