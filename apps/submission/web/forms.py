"""Forms of those who send jobs."""

from django import forms

from apps.clusters.models import Cluster
from apps.diagnosis.enums import VerdictKind
from apps.production.domain.reasons import MAX_REASON
from apps.production.enums import Verb
from apps.submission.domain.limits import MAX_LIMIT

_REASON = "All who see the request read it in its timeline."


class AssignForm(forms.Form):
    """Which cluster, and how it begins."""

    cluster = forms.ModelChoiceField(
        Cluster.objects.filter(submits=True),
        to_field_name="name",
        empty_label="choose one",
        help_text="The portal sends the jobs there, stage by stage.",
    )
    verb = forms.ChoiceField(
        label="How to begin",
        required=False,
        choices=[
            ("", "leave its state as it is"),
            (Verb.TEST.value, "with a test of each stage; production follows when it is good"),
            (Verb.START.value, "with production: all jobs"),
        ],
    )
    most_in_flight = forms.IntegerField(
        label="Most jobs at once",
        required=False,
        min_value=1,
        max_value=MAX_LIMIT,
        help_text="Waiting and running together; empty for what the request and the cluster allow.",
    )
    reason = forms.CharField(required=False, max_length=MAX_REASON, help_text=_REASON)
    version = forms.IntegerField(required=False, min_value=1, widget=forms.HiddenInput)


class RetryForm(forms.Form):
    """Which failed jobs are sent again."""

    position = forms.IntegerField(min_value=0, max_value=1000, widget=forms.HiddenInput)
    verdict = forms.ChoiceField(
        label="Which failed jobs",
        required=False,
        choices=[("", "All"), *VerdictKind.choices],
    )
    reason = forms.CharField(required=False, max_length=MAX_REASON)


class AcceptForm(forms.Form):
    """Why a stage is taken as it is, or is waited for again."""

    position = forms.IntegerField(min_value=0, max_value=1000, widget=forms.HiddenInput)
    reason = forms.CharField(max_length=MAX_REASON, help_text=_REASON)


class LimitForm(forms.Form):
    """How many jobs there may be at once, and why; `was` is what the person saw."""

    most_in_flight = forms.IntegerField(
        label="Most jobs at once", required=False, help_text="Waiting and running together; empty for no limit."
    )
    was = forms.IntegerField(required=False, min_value=0, widget=forms.HiddenInput)
    reason = forms.CharField(max_length=MAX_REASON, help_text=_REASON)


class CancelForm(forms.Form):
    """Why the jobs are ended."""

    reason = forms.CharField(max_length=MAX_REASON, help_text=_REASON)
