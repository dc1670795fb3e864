"""The progress of requests in the API."""

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.response import Response

from apps.accounts.api import ApiRequest
from apps.production.api.routes import OfRequests
from apps.progress.domain.progress import StageNow, progress_now


class AcceptanceReader(serializers.Serializer[StageNow]):
    """A stage that was taken as it is, without jobs that did not complete."""

    by = serializers.CharField(source="acceptance.by")
    at = serializers.DateTimeField(source="acceptance.at")
    reason = serializers.CharField(source="acceptance.reason")
    jobs_missing = serializers.IntegerField(source="acceptance.jobs_missing")
    events_missing = serializers.IntegerField(allow_null=True)


class StageProgressReader(serializers.Serializer[StageNow]):
    """One stage. Null is not known; `queued`, `running` and `held` where no cluster could be asked."""

    stage = serializers.CharField(source="row.stage")
    jobs_asked = serializers.IntegerField(source="row.wanted", allow_null=True)
    done = serializers.IntegerField(source="row.completed")
    tests = serializers.IntegerField(source="row.left_out.tests")
    failed = serializers.IntegerField(source="row.sums.failed")
    interrupted = serializers.IntegerField(source="row.sums.interrupted")
    retried = serializers.IntegerField(source="row.sums.retried")
    queued = serializers.IntegerField(source="waiting.queued", default=None, allow_null=True)
    running = serializers.IntegerField(source="waiting.running", default=None, allow_null=True)
    held = serializers.IntegerField(source="waiting.held", default=None, allow_null=True)
    files_in = serializers.IntegerField(source="counted.files_in", allow_null=True)
    events_in = serializers.IntegerField(source="counted.events_in", allow_null=True)
    files_out = serializers.IntegerField(source="counted.files_out", allow_null=True)
    events_out = serializers.IntegerField(source="counted.events_out", allow_null=True)
    expected_end = serializers.DateTimeField(source="expected.at", allow_null=True)
    expected_early = serializers.DateTimeField(source="expected.early", allow_null=True)
    expected_late = serializers.DateTimeField(source="expected.late", allow_null=True)
    expected_basis = serializers.CharField(source="expected.basis")
    core_hours_used = serializers.FloatField(source="burn.used")
    core_hours_asked = serializers.FloatField(source="burn.asked", allow_null=True)
    located = serializers.BooleanField(allow_null=True)
    accepted = serializers.SerializerMethodField()

    @extend_schema_field(AcceptanceReader(allow_null=True))
    def get_accepted(self, stage: StageNow) -> dict[str, Any] | None:
        return AcceptanceReader(stage).data if stage.acceptance else None


class ProgressReader(serializers.Serializer[Any]):
    """Progress of a request: `as_of` of ended jobs, `queue_as_of` of those that wait and run.

    `expected_end` is that of the whole chain; where it is null, `expected_basis` says which stage lacks it, and why.
    """

    request = serializers.CharField()
    state = serializers.CharField()
    as_of = serializers.DateTimeField(allow_null=True)
    queue_as_of = serializers.DateTimeField(allow_null=True)
    clusters_not_asked = serializers.ListField(child=serializers.CharField())
    expected_end = serializers.DateTimeField(allow_null=True)
    expected_early = serializers.DateTimeField(allow_null=True)
    expected_late = serializers.DateTimeField(allow_null=True)
    expected_basis = serializers.CharField()
    stages = StageProgressReader(many=True)


class ProgressViewSet(OfRequests):
    """How far requests are."""

    serializer_class = ProgressReader

    def retrieve(self, request: ApiRequest, key: str) -> Response:
        """Return the progress of one request, stage by stage."""
        wanted = self.get_object()
        now = progress_now(wanted, at=timezone.now())
        answer = {
            "request": wanted.key,
            "state": wanted.state,
            "as_of": now.as_of,
            "queue_as_of": now.queue_as_of,
            "clusters_not_asked": now.queue_unknown,
            "expected_end": now.expected.at,
            "expected_early": now.expected.early,
            "expected_late": now.expected.late,
            "expected_basis": now.expected.basis,
            "stages": now.stages,
        }
        return Response(ProgressReader(answer).data)
