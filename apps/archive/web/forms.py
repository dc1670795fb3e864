"""Forms of the job page: job to compare with, the reason for a pin, and the choice of a capture."""

from django import forms

from apps.accounts.models import User
from apps.archive.domain.store.contents import archived_jobs_for_list
from apps.archive.models import ArchivedJob
from apps.clusters.models import Cluster


class OtherJobForm(forms.Form):
    cluster = forms.ModelChoiceField(
        queryset=Cluster.objects.all(), to_field_name="name", empty_label=None
    )
    job = forms.CharField(label="Job ID", max_length=64)

    def find(self, user: User) -> ArchivedJob | None:
        """Return the newest job with this ID that the user may see.

        Without one, add an error to the field.
        """
        if not self.is_valid():
            return None
        jobs = archived_jobs_for_list(user).defer(None).filter(cluster=self.cleaned_data["cluster"])
        newest = jobs.filter(job_id=self.cleaned_data["job"]).order_by("-submitted_at").first()
        if newest is None:
            self.add_error("job", "No such job is archived that you may see.")
        return newest


class PinForm(forms.Form):
    reason = forms.CharField(max_length=200, label="Reason", help_text="For example a ticket.")


class CaptureChoiceForm(forms.Form):
    conflict_version = forms.IntegerField(widget=forms.HiddenInput)
    reason = forms.CharField(
        max_length=200,
        label="Reason",
        help_text="How you know which capture is right, or that none is.",
    )
