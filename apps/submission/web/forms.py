"""Forms of submission."""

from django import forms

from apps.clusters.models import Cluster
from apps.diagnosis.enums import VerdictKind
from apps.production.domain.reasons import MAX_REASON
from apps.production.enums import Verb
from apps.submission.domain.limits import MAX_LIMIT

_REASON = "Shown in the timeline of the request."


class AssignForm(forms.Form):
    """The cluster, and how to start."""

    cluster = forms.ModelChoiceField(
        Cluster.objects.filter(submits=True),
        to_field_name="name",
        empty_label="Choose a cluster",
        help_text="The portal submits the jobs there, stage by stage.",
    )
    verb = forms.TypedChoiceField(
        label="Start",
        required=False,
        coerce=Verb,
        empty_value=None,
        choices=[
            ("", "Keep the state of the request"),
            (Verb.TEST.value, "With a test of each stage, then production if it succeeds"),
            (Verb.START.value, "With production of all jobs"),
        ],
    )
    most_in_flight = forms.IntegerField(
        label="Maximum concurrent jobs",
        required=False,
        min_value=1,
        max_value=MAX_LIMIT,
        help_text="Queued and running. Empty: as the request and the cluster allow.",
    )
    reason = forms.CharField(required=False, max_length=MAX_REASON, help_text=_REASON)
    version = forms.IntegerField(required=False, min_value=1, widget=forms.HiddenInput)


class RetryForm(forms.Form):
    """The failed jobs to retry."""

    position = forms.IntegerField(min_value=0, max_value=1000, widget=forms.HiddenInput)
    verdict = forms.ChoiceField(
        label="Failed jobs",
        required=False,
        choices=[("", "All"), *VerdictKind.choices],
    )
    reason = forms.CharField(required=False, max_length=MAX_REASON)


class AcceptForm(forms.Form):
    """Accepts a stage as is, or revokes that."""

    position = forms.IntegerField(min_value=0, max_value=1000, widget=forms.HiddenInput)
    reason = forms.CharField(max_length=MAX_REASON, help_text=_REASON)


class LimitForm(forms.Form):
    """The job limit; `was` is the limit that the user saw."""

    most_in_flight = forms.IntegerField(
        label="Maximum concurrent jobs", required=False, help_text="Queued and running. Empty: no limit."
    )
    was = forms.IntegerField(required=False, min_value=0, widget=forms.HiddenInput)
    reason = forms.CharField(max_length=MAX_REASON, help_text=_REASON)


class CancelForm(forms.Form):
    """Cancels submitted jobs."""

    reason = forms.CharField(max_length=MAX_REASON, help_text=_REASON)
