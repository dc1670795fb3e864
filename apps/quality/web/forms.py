"""Forms of those who look at data quality."""

from django import forms

from apps.production.domain.reasons import MAX_REASON


class WaiveForm(forms.Form):
    """A person's word for a result that has not passed."""

    result = forms.IntegerField(min_value=1, max_value=2**62, widget=forms.HiddenInput)
    reason = forms.CharField(
        label="Why it is good enough",
        help_text="All who see the request read it, with your name.",
        max_length=MAX_REASON,
        widget=forms.Textarea(attrs={"rows": 3}),
    )
    in_part = forms.BooleanField(
        required=False,
        label="The request is partially done",
        help_text="What is missing will not come. Once nothing else is open, it is closed so.",
    )


class WithdrawForm(forms.Form):
    """Why a waiver is taken back."""

    waiver = forms.IntegerField(min_value=1, max_value=2**62, widget=forms.HiddenInput)
    reason = forms.CharField(
        help_text="All who see the request read it, with your name.",
        max_length=MAX_REASON,
        widget=forms.Textarea(attrs={"rows": 3}),
    )
