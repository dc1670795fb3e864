"""Forms to accept claims of jobs and to withdraw acceptances."""

from django import forms

from apps.clusters.models import Cluster
from apps.jobs.enums import ClaimScope
from apps.production.domain.reasons import MAX_REASON

_REASON = "Shown in the activity of the request."


class AcceptClaimsForm(forms.Form):
    """The claims to accept: one job, an array, or all jobs of a user."""

    cluster = forms.ModelChoiceField(
        Cluster.objects.all(), to_field_name="name", empty_label="Choose a cluster"
    )
    scope = forms.ChoiceField(label="Accept", choices=ClaimScope.choices, initial=ClaimScope.ARRAY)
    name = forms.CharField(
        label="ID or user",
        max_length=255,
        strip=False,
        help_text="Job ID, ID of the array, or user name, as listed.",
    )
    reason = forms.CharField(max_length=MAX_REASON, help_text=_REASON)


class WithdrawClaimsForm(forms.Form):
    """The acceptance to withdraw."""

    acceptance = forms.IntegerField(min_value=1, max_value=2**62, label="Number")
    reason = forms.CharField(max_length=MAX_REASON, help_text=_REASON)
