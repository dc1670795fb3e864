"""Debug re-runs in the API."""

from typing import Any

from django.db.models import QuerySet
from rest_framework import mixins, serializers

from apps.accounts.api import ApiViewSet, command
from apps.accounts.models import User
from apps.core.errors import InvalidFields
from apps.jobs.models import Job
from apps.production.domain.reasons import MAX_REASON
from apps.submission.api.serializers import SubmissionReader
from apps.submission.domain.debugging.rerun import profiles_for, start_debug_run
from apps.submission.enums import Purpose
from apps.submission.models import Submission


class DebugRunReader(SubmissionReader):
    """A debug re-run: an array of one job."""

    job = serializers.IntegerField(
        source="debug_of_id", allow_null=True, help_text="The job that is run again."
    )

    class Meta(SubmissionReader.Meta):
        fields = ["id", "job", "profile", *SubmissionReader.Meta.fields]


class DebugRunWriter(serializers.Serializer[Any]):
    """The job to run again, and the name of the profile; without one,
    the first of its experiment.
    """

    job = serializers.IntegerField(min_value=1, max_value=2**63 - 1)
    profile = serializers.CharField(required=False, allow_blank=True, max_length=64, default="")
    reason = serializers.CharField(
        required=False, allow_blank=True, max_length=MAX_REASON, default=""
    )


class DebugRunViewSet(mixins.RetrieveModelMixin, mixins.ListModelMixin, ApiViewSet[Submission]):
    """Jobs that are run again with more output; they count for nothing."""

    noun = "debug run"
    serializer_class = DebugRunReader
    lookup_value_regex = r"\d{1,18}"

    def get_queryset(self) -> QuerySet[Submission]:
        runs = Submission.objects.filter(
            purpose=Purpose.DEBUG, debug_of__in=Job.objects.visible_to(self.request.user)
        )
        return runs.select_related("request", "cluster", "retry_of").order_by("-pk")

    @command(DebugRunWriter, DebugRunReader, code=201)
    def create(self, *, job: int, profile: str, by: User, **fields: Any) -> Submission:
        """Submit a job of the portal again with the changes of a profile.

        For approvers and shifters.
        """
        original_job = (
            Job.objects.visible_to(by)
            .select_related("cluster", "experiment")
            .filter(pk=job)
            .first()
        )
        if original_job is None:
            raise InvalidFields({"job": ["Not found, or you do not have access."]})

        profiles = {available.name: available for available in profiles_for(original_job)}
        if profile and profile not in profiles:
            raise InvalidFields({"profile": [f"Unknown. The profiles are: {', '.join(profiles)}."]})

        name = profile or next(iter(profiles))
        return start_debug_run(job=original_job, profile=profiles[name], by=by, **fields)
