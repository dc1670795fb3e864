"""Forms of excluded hosts. Times are in the user's zone."""

from django import forms

from apps.clusters.models import Cluster
from apps.core.web.moments import LocalMomentField
from apps.diagnosis.enums import GroupKind
from apps.diagnosis.models import FailureGroup
from apps.production.domain.reasons import MAX_REASON

_LINES = forms.Textarea(attrs={"rows": 2})


class ExcludeForm(forms.Form):
    """A host to exclude, and until when."""

    cluster = forms.ModelChoiceField(Cluster.objects.all(), to_field_name="name")
    host = forms.CharField(max_length=255, help_text="Name of one host, such as wn-0219.")
    expires_at = LocalMomentField(
        label="Until", help_text="Then it gets new jobs again, unless someone extends this."
    )
    reason = forms.CharField(
        max_length=MAX_REASON, widget=_LINES, help_text="What is wrong with it, or a ticket."
    )
    group = forms.ModelChoiceField(
        FailureGroup.objects.filter(kind=GroupKind.HOST),
        required=False,
        widget=forms.HiddenInput,
    )


class ExtendForm(forms.Form):
    """Another end of an exclusion."""

    expires_at = LocalMomentField(label="Until")
    reason = forms.CharField(max_length=MAX_REASON, required=False, widget=_LINES)


class ReturnForm(forms.Form):
    """Why a host may get new jobs again."""

    reason = forms.CharField(
        max_length=MAX_REASON, widget=_LINES, help_text="How you know that jobs run there."
    )
