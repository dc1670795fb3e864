"""Forms of data quality."""

from django import forms

from apps.production.domain.reasons import MAX_REASON


class _SigningForm(forms.Form):
    reason = forms.CharField(
        help_text="Shown with your name to everyone who can see the request.",
        max_length=MAX_REASON,
        widget=forms.Textarea(attrs={"rows": 3}),
    )


class WaiveForm(_SigningForm):
    """The waiver of a result."""

    result = forms.IntegerField(min_value=1, max_value=2**62, widget=forms.HiddenInput)
    in_part = forms.BooleanField(
        required=False,
        label="Request is partially done",
        help_text="The missing output will not be produced. The request closes as partially done.",
    )


class WithdrawForm(_SigningForm):
    """The withdrawal of a waiver."""

    waiver = forms.IntegerField(min_value=1, max_value=2**62, widget=forms.HiddenInput)
