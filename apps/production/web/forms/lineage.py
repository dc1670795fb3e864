"""Forms to split and combine requests."""

import re
from typing import Any

from django import forms

from apps.core.domain.quantities import parse_count
from apps.production.domain.lineage.combination import MAX_COMBINED
from apps.production.domain.lineage.splits import SplitUnit

_REASON = "Shown in the activity of the request."


class SplitForm(forms.Form):
    by = forms.ChoiceField(label="Split by")
    size = forms.CharField(label="Size of a part", help_text="Examples: 500, 2 M. The last part gets the remainder.")
    reason = forms.CharField(required=False, widget=forms.Textarea(attrs={"rows": 2}), help_text=_REASON)
    version = forms.IntegerField(required=False, min_value=1, widget=forms.HiddenInput)

    def __init__(self, *args: Any, ways: dict[SplitUnit, int], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["by"].choices = [  # type: ignore[attr-defined]
            (way.value, f"{way} ({count:,} total)") for way, count in ways.items()
        ]

    def clean_size(self) -> int:
        try:
            return parse_count(self.cleaned_data["size"])
        except ValueError as error:
            raise forms.ValidationError(str(error)) from None


class _Keys(forms.MultipleChoiceField):
    """Keys ticked on any page of the list; the view reports unknown ones by name."""

    def valid_value(self, value: Any) -> bool:
        return True


class CombineForm(forms.Form):
    """The other requests, ticked in the list or typed, and the reason."""

    chosen = _Keys(required=False)
    others = forms.CharField(
        required=False, max_length=2_000, label="Other requests, by key", help_text="Example: NOVA-0219, NOVA-0223."
    )
    reason = forms.CharField(required=False, widget=forms.Textarea(attrs={"rows": 2}), help_text=_REASON)

    def clean(self) -> dict[str, Any]:
        given = super().clean() or {}
        named = re.findall(r"[^\s,;]+", given.get("others", ""))
        given["keys"] = list(dict.fromkeys([*given.get("chosen", []), *named]))
        if "chosen" in given and "others" in given and not 0 < len(given["keys"]) < MAX_COMBINED:
            raise forms.ValidationError(f"Choose 1 to {MAX_COMBINED - 1} other requests.")
        return given
