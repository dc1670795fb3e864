"""Forms to split and combine requests."""

import re
from typing import Any

from django import forms

from apps.core.domain.quantities import parse_count
from apps.production.domain.lineage.combination import MAX_COMBINED
from apps.production.domain.lineage.splits import SplitUnit
from apps.production.web.forms.moves import ReasonForm


class SplitForm(ReasonForm):
    by = forms.ChoiceField(label="Split by")
    size = forms.CharField(
        label="Size of a part", help_text="Examples: 500, 2 M. The last part gets the remainder."
    )
    field_order = ("by", "size", "reason")

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
    """Keys ticked on any page of the list. The view reports unknown keys by name."""

    def valid_value(self, value: Any) -> bool:
        return True


class CombineForm(ReasonForm):
    """The other requests, ticked in the list or typed, and the reason."""

    version = None  # type: ignore[assignment]  # each request has its own
    chosen = _Keys(required=False)
    others = forms.CharField(
        required=False,
        max_length=2_000,
        label="Other requests, by key",
        help_text="Example: NOVA-0219, NOVA-0223.",
    )
    field_order = ("chosen", "others", "reason")

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        named = re.findall(r"[^\s,;]+", cleaned.get("others", ""))
        cleaned["keys"] = list(dict.fromkeys([*cleaned.get("chosen", []), *named]))
        if (
            "chosen" in cleaned
            and "others" in cleaned
            and not 0 < len(cleaned["keys"]) < MAX_COMBINED
        ):
            raise forms.ValidationError(f"Choose 1 to {MAX_COMBINED - 1} other requests.")
        return cleaned
