"""Forms of data quality."""

import re
from typing import Any

from django import forms

from apps.production.domain.reasons import MAX_REASON

_TICK = "Tick the results to waive."
_ID = re.compile("[1-9][0-9]{0,17}", re.ASCII)


class _SigningForm(forms.Form):
    reason = forms.CharField(
        label="Reason (required)",
        help_text="Shown with your name to everyone who can see the request.",
        max_length=MAX_REASON,
        widget=forms.Textarea(attrs={"rows": 3}),
    )


class WaiveForm(_SigningForm):
    """The waivers of results, by their IDs, for one reason."""

    result = forms.TypedMultipleChoiceField(
        coerce=int, error_messages=dict.fromkeys(("required", "invalid_choice"), _TICK)
    )
    in_part = forms.BooleanField(
        required=False,
        label="Request is partially done",
        help_text="The missing output will not be produced. The request closes as partially done.",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Results of an earlier run are sent too. The service says why they cannot be waived.
        sent = []
        data: Any = self.data
        if self.is_bound:
            sent = [pk for pk in data.getlist("result") if _ID.fullmatch(pk)]
        self.fields["result"].choices = [(pk, pk) for pk in sent]  # type: ignore[attr-defined]


class WithdrawForm(_SigningForm):
    """The withdrawal of a waiver."""

    waiver = forms.IntegerField(min_value=1, max_value=2**62, widget=forms.HiddenInput)
