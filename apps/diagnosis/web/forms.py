"""Forms to correct a verdict and to triage failure groups."""

from typing import Any, ClassVar

from django import forms

from apps.core.web.moments import MomentField
from apps.diagnosis.enums import VerdictKind
from apps.diagnosis.wording import headline


class CorrectionForm(forms.Form):
    """The user's verdict on a job, and the reason for it."""

    verdict = forms.ChoiceField(choices=[(kind.value, headline(kind)) for kind in VerdictKind])
    reason = forms.CharField(max_length=2000, widget=forms.Textarea(attrs={"rows": 2}))


class GroupForm(forms.Form):
    """An action on a failure group, and the values that it needs."""

    DONE: ClassVar[dict[str, str]] = {
        "assign": "Group assigned.",
        "known": "Group marked as known.",
        "retried": "Group marked as retried.",
        "resolved": "Group resolved.",
        "muted": "Group muted.",
        "unmute": "Group unmuted.",
        "note": "Note added.",
    }

    do = forms.ChoiceField(choices=[(name, name) for name in DONE])
    owner = forms.CharField(
        max_length=150,
        required=False,
        show_hidden_initial=True,
        label="Assign to",
        help_text="Username.",
    )
    text = forms.CharField(
        max_length=4000,
        required=False,
        label="Note",
        widget=forms.Textarea(attrs={"rows": 2}),
        help_text="Every button below adds it.",
    )
    days = forms.IntegerField(
        min_value=1,
        max_value=365,
        required=False,
        show_hidden_initial=True,
        label="Mute for days",
    )
    seen_at = MomentField(required=False, widget=forms.HiddenInput)

    def clean(self) -> dict[str, Any]:
        data: dict[str, Any] = super().clean() or self.cleaned_data
        if data.get("do") == "muted" and not data.get("days") and "days" not in self.errors:
            self.add_error("days", "Enter how many days it is muted.")
        if data.get("do") in ("known", "retried", "resolved", "unmute") and self.typed("days"):
            self.add_error("days", "Press Mute to mute it, or clear the days.")
        return data

    def typed(self, name: str) -> Any:
        """Return the value that the user entered in a field; None if it is empty or unchanged."""
        if name not in self.changed_data:
            return None
        return self.cleaned_data.get(name) or None
