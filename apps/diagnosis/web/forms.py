"""Form to correct a verdict."""

from django import forms

from apps.diagnosis.enums import VerdictKind
from apps.diagnosis.wording import headline


class CorrectionForm(forms.Form):
    """The user's verdict on a job, and the reason for it."""

    verdict = forms.ChoiceField(choices=[(kind.value, headline(kind)) for kind in VerdictKind])
    reason = forms.CharField(max_length=2000, widget=forms.Textarea(attrs={"rows": 2}))
