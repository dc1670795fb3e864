"""Forms of submission."""

from collections.abc import Sequence
from typing import ClassVar

from django import forms
from django.http import QueryDict

from apps.clusters.models import Cluster
from apps.diagnosis.enums import VerdictKind
from apps.production.domain.lifecycle.transitions import transitions_from
from apps.production.domain.reasons import MAX_REASON
from apps.production.enums import RequestState, Verb
from apps.submission.domain.arrays.ignored_advice import MOST_HOURS
from apps.submission.domain.arrays.limits import MAX_LIMIT
from apps.submission.domain.retries.bad_hosts import BadHost
from apps.submission.domain.retries.batches import (
    ATTEMPTS,
    MOST_ATTEMPTS,
    MOST_OF_STAGE,
    MOST_PAUSE_MINUTES,
    MOST_STEP,
    PAUSE_MINUTES,
)
from apps.submission.models import DebugProfile

#: Characters of the names in a form.
MOST_NAMES_LENGTH = 1_000_000
MOST_HOST_LENGTH = 255
_STARTS = (
    (Verb.TEST.value, "With a test of each stage, then production if it succeeds"),
    (Verb.START.value, "With production of all jobs"),
)
_REASON = "Shown in the activity of the request."


def limit_field() -> forms.IntegerField:
    """Return the field for the maximum of jobs of a request that are queued and running."""
    return forms.IntegerField(
        label="Maximum concurrent jobs",
        required=False,
        min_value=1,
        max_value=MAX_LIMIT,
        help_text="Queued and running. Empty: as the request and the cluster allow.",
    )


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
        choices=[("", "Keep the state of the request"), *_STARTS],
    )
    most_in_flight = limit_field()
    reason = forms.CharField(required=False, max_length=MAX_REASON, help_text=_REASON)
    version = forms.IntegerField(required=False, min_value=1, widget=forms.HiddenInput)

    def offer_starts_from(self, state: str) -> None:
        """Offer the starts that are possible in a state of the request."""
        if state == RequestState.QUEUED:
            choices = [("", "When its turn comes in the queue"), *_STARTS]
            self.fields["verb"].choices = choices  # type: ignore[attr-defined]
        elif not any(transitions_from(state, Verb(name)) for name, _ in _STARTS):
            del self.fields["verb"]


class FilesForm(forms.Form):
    """Files of a stage to decide on; none named means all of them."""

    position = forms.IntegerField(min_value=0, max_value=1000, widget=forms.HiddenInput)
    names = forms.CharField(
        label="Files",
        required=False,
        strip=False,
        max_length=MOST_NAMES_LENGTH,
        widget=forms.Textarea(attrs={"rows": 6}),
        help_text="One name per line. Empty: all of them.",
    )
    reason = forms.CharField(max_length=MAX_REASON, help_text=_REASON)

    def clean_names(self) -> list[str]:
        names = {}
        for line in self.cleaned_data["names"].splitlines():
            if line.strip():
                names[line] = True
        return list(names)


class TakeBackForm(FilesForm):
    """Files that were given up and are wanted again."""

    reason = forms.CharField(required=False, max_length=MAX_REASON, help_text=_REASON)


class CountForm(forms.Form):
    """Which job's result counts for a file that was done twice."""

    position = forms.IntegerField(min_value=0, max_value=1000, widget=forms.HiddenInput)
    file = forms.IntegerField(min_value=1, widget=forms.HiddenInput)
    job = forms.IntegerField(min_value=1, widget=forms.HiddenInput)
    reason = forms.CharField(required=False, max_length=MAX_REASON)


class StageForm(forms.Form):
    """The stage that an action is about."""

    position = forms.IntegerField(min_value=0, max_value=1000, widget=forms.HiddenInput)


class RetryForm(forms.Form):
    """The failed jobs to retry."""

    position = forms.IntegerField(min_value=0, max_value=1000, widget=forms.HiddenInput)
    verdict = forms.ChoiceField(
        label="Failed jobs",
        required=False,
        choices=[("", "All"), *VerdictKind.choices],
    )
    with_planned = forms.BooleanField(
        label="Also those that recovery rules will retry", required=False
    )
    reason = forms.CharField(required=False, max_length=MAX_REASON)


class DebugForm(forms.Form):
    """The profile of a debug re-run, and why."""

    profile = forms.ChoiceField()
    reason = forms.CharField(required=False, max_length=MAX_REASON)

    def __init__(self, profiles: Sequence[DebugProfile], data: QueryDict | None = None) -> None:
        super().__init__(data, initial={"profile": profiles[0].name})
        choices = []
        for profile in profiles:
            if profile.description:
                label = f"{profile.name} – {profile.description}"
            else:
                label = profile.name
            choices.append((profile.name, label))
        self.fields["profile"].choices = choices  # type: ignore[attr-defined]


class AcceptForm(forms.Form):
    """Accepts a stage as is, or revokes that."""

    position = forms.IntegerField(min_value=0, max_value=1000, widget=forms.HiddenInput)
    reason = forms.CharField(max_length=MAX_REASON, help_text=_REASON)


class LimitForm(forms.Form):
    """The job limit; `was` is the limit that the user saw."""

    most_in_flight = forms.IntegerField(
        label="Maximum concurrent jobs",
        required=False,
        help_text="Queued and running. Empty: no limit.",
    )
    was = forms.IntegerField(required=False, min_value=0, widget=forms.HiddenInput)
    reason = forms.CharField(max_length=MAX_REASON, help_text=_REASON)


class IgnoreAdviceForm(forms.Form):
    """Submits jobs for some hours although the advice is not to."""

    hours = forms.IntegerField(
        label="For how many hours", min_value=1, max_value=MOST_HOURS, initial=24
    )
    reason = forms.CharField(max_length=MAX_REASON, help_text=_REASON)


class CancelForm(forms.Form):
    """Cancels submitted jobs."""

    reason = forms.CharField(max_length=MAX_REASON, help_text=_REASON)


class ReleaseForm(forms.Form):
    """Releases held jobs of one array."""

    reason = forms.CharField(max_length=MAX_REASON, required=False, help_text=_REASON)


class HostsField(forms.MultipleChoiceField):
    """Tick boxes of proposed hosts. Other hosts are checked when the batch is planned."""

    widget = forms.CheckboxSelectMultiple

    def valid_value(self, value: str) -> bool:
        """Accept hosts that are proposed no more."""
        return len(value) <= MOST_HOST_LENGTH


class BatchForm(forms.Form):
    """The limits of a batch of retries."""

    step = forms.IntegerField(
        label="Jobs per step",
        required=False,
        min_value=1,
        max_value=MOST_STEP,
        help_text="Released at a time. Empty: a fifth of the jobs, at least 5 and at most 50.",
    )
    pause_minutes = forms.IntegerField(
        label="Minutes between steps",
        min_value=0,
        max_value=MOST_PAUSE_MINUTES,
        initial=PAUSE_MINUTES,
    )
    attempts = forms.IntegerField(
        label="Maximum attempts",
        min_value=1,
        max_value=MOST_ATTEMPTS,
        initial=ATTEMPTS,
        help_text="Jobs that have had this many attempts are left out.",
    )
    of_stage = forms.IntegerField(
        label="Budget per stage",
        required=False,
        min_value=0,
        max_value=MOST_OF_STAGE,
        help_text="Maximum retried jobs of a stage, earlier retries included. Empty: no limit.",
    )
    avoid_hosts = HostsField(
        label="Bad hosts",
        required=False,
        help_text="The retries do not run there. Other jobs still do.",
    )
    reason = forms.CharField(required=False, max_length=MAX_REASON)
    with_planned = forms.BooleanField(required=False, widget=forms.HiddenInput)

    def propose(self, bad_hosts: Sequence[BadHost]) -> None:
        """Offer to avoid these hosts."""
        if not bad_hosts:
            del self.fields["avoid_hosts"]
            return
        choices = [(bad_host.host, bad_host.label) for bad_host in bad_hosts]
        self.fields["avoid_hosts"].choices = choices  # type: ignore[attr-defined]


class CancelBatchForm(forms.Form):
    """Cancels or resumes a batch of retries."""

    DONE: ClassVar = {
        "cancel": "Retries that were not released are cancelled.",
        "resume": "The batch goes on.",
    }

    do = forms.ChoiceField(choices=[("cancel", "Cancel"), ("resume", "Resume")])
    reason = forms.CharField(required=False, max_length=MAX_REASON)
