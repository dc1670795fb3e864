"""Correcting a verdict."""

from django import forms

from apps.diagnosis.domain.facts import ANSWERS
from apps.diagnosis.enums import VerdictKind


class CorrectionForm(forms.Form):
    """What a person says instead of the rules."""

    verdict = forms.ChoiceField(choices=[(kind.value, ANSWERS[kind].rstrip(".")) for kind in VerdictKind])
    reason = forms.CharField(max_length=2000, widget=forms.Textarea(attrs={"rows": 2}))
