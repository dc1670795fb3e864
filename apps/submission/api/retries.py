"""Batches of retries in the API: dry run, plan, progress, cancellation."""

from typing import Any

from django.db.models import QuerySet
from django.http import Http404, HttpResponse
from django.utils import timezone
from django.utils.functional import cached_property
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import mixins, serializers
from rest_framework.decorators import action
from rest_framework.response import Response

from apps.accounts.api import ApiRequest, ApiViewSet, command
from apps.accounts.models import User
from apps.core.api.input import checked_data
from apps.core.errors import InvalidFields
from apps.core.web.turns import one_at_a_time
from apps.production.domain.holds import may_hold_some
from apps.production.domain.outlook import Obstacle
from apps.production.domain.reasons import MAX_REASON
from apps.submission.domain.retries import batches
from apps.submission.domain.retries.bundle import retry_bundle
from apps.submission.domain.retries.eligibility import DryRun, RetryLimits, Source
from apps.submission.domain.retries.obstacles import obstacles_by_batch
from apps.submission.enums import LeftOut
from apps.submission.models import RetryBatch
from apps.submission.web.retries import source_or_404

SOURCES = ("group", "incident", "job")


class SourceSerializer(serializers.Serializer[Any]):
    """What failed jobs are retried for, and the limits of the batch."""

    kind = serializers.ChoiceField(choices=SOURCES)
    id = serializers.IntegerField(
        min_value=1, max_value=2**63 - 1, help_text="Of the group, incident or job."
    )
    attempts = serializers.IntegerField(
        min_value=1,
        max_value=batches.MOST_ATTEMPTS,
        default=batches.ATTEMPTS,
        help_text="Maximum attempts of a job.",
    )
    of_stage = serializers.IntegerField(
        min_value=0,
        max_value=batches.MOST_OF_STAGE,
        required=False,
        allow_null=True,
        default=None,
        help_text="Maximum retried jobs of a stage, earlier retries included; null for no limit.",
    )
    with_planned = serializers.BooleanField(
        default=False,
        help_text="Also jobs of a group or an incident that recovery rules will retry.",
    )


class BatchWriter(SourceSerializer):
    """A batch to plan."""

    step = serializers.IntegerField(
        min_value=1,
        max_value=batches.MOST_STEP,
        default=None,
        allow_null=True,
        help_text="Default: a fifth of the jobs, at least 5 and at most 50.",
    )
    pause_minutes = serializers.IntegerField(
        min_value=0, max_value=batches.MOST_PAUSE_MINUTES, default=batches.PAUSE_MINUTES
    )
    reason = serializers.CharField(
        required=False, allow_blank=True, max_length=MAX_REASON, default=""
    )
    avoid_hosts = serializers.ListField(
        child=serializers.CharField(max_length=255),
        max_length=batches.MOST_AVOIDED,
        default=list,
        help_text="Hosts on which some of the jobs failed, and on which no retry runs.",
    )


class BatchReasonWriter(serializers.Serializer[Any]):
    """The reason of a change of a batch."""

    reason = serializers.CharField(
        required=False, allow_blank=True, max_length=MAX_REASON, default=""
    )


class DryRunSerializer(serializers.Serializer[Any]):
    """Jobs to retry and those left out by reason, by primary key."""

    jobs = serializers.IntegerField()
    eligible = serializers.ListField(child=serializers.IntegerField())
    core_seconds = serializers.IntegerField(
        help_text="Of the failed attempts of the eligible jobs."
    )
    left_out = serializers.DictField(
        child=serializers.ListField(child=serializers.IntegerField()),
        help_text=f"By {', '.join(LeftOut.values)}.",
    )


class ObstacleReader(serializers.Serializer[Any]):
    """What a batch waits for: a service that is down,
    or an announcement that says not to submit.
    """

    service = serializers.CharField(source="disruption.service.slug", default=None, allow_null=True)
    down_since = serializers.DateTimeField(source="disruption.since", default=None, allow_null=True)
    announcement = serializers.IntegerField(source="announcement.pk", default=None, allow_null=True)


class BatchReader(serializers.ModelSerializer[RetryBatch]):
    """A batch of retries; `jobs` are their numbers by state.

    `waiting_for` names what all jobs wait for that are not released yet; it is empty while some can
    be released.
    """

    group = serializers.IntegerField(source="group_id", allow_null=True)
    incident = serializers.IntegerField(source="incident_id", allow_null=True)
    job = serializers.IntegerField(source="job_id", allow_null=True)
    jobs = serializers.SerializerMethodField()
    waiting_for = serializers.SerializerMethodField()

    class Meta:
        model = RetryBatch
        fields = [
            "id",
            "title",
            "group",
            "incident",
            "job",
            "state",
            "step",
            "pause_minutes",
            "reason",
            "jobs",
            "waiting_for",
            "created_at",
            "created_by",
            "released_at",
            "ended_at",
        ]

    @cached_property
    def _counts(self) -> dict[int, dict[str, int]]:
        """Return the numbers of jobs of all batches of the response, in one query."""
        return batches.counts_by_batch(self._batches)

    @cached_property
    def _obstacles(self) -> dict[int, list[Obstacle]]:
        return obstacles_by_batch(self._batches, self.context["request"].user, timezone.now())

    @property
    def _batches(self) -> Any:
        """The batches of the response: the page of a list, or the one that is shown."""
        return self.parent.instance if self.parent else [self.instance]

    def get_jobs(self, batch: RetryBatch) -> dict[str, int]:
        return self._counts.get(batch.pk, {})

    @extend_schema_field(ObstacleReader(many=True))
    def get_waiting_for(self, batch: RetryBatch) -> Any:
        return ObstacleReader(self._obstacles.get(batch.pk, []), many=True).data


class RetryBatchViewSet(mixins.RetrieveModelMixin, mixins.ListModelMixin, ApiViewSet[RetryBatch]):
    """Batches of retries: failed jobs of a group, an incident or one job, released in steps."""

    serializer_class = BatchReader
    lookup_value_regex = r"\d{1,18}"

    def get_queryset(self) -> QuerySet[RetryBatch]:
        return batches.visible_batches(self.request.user)

    @extend_schema(parameters=[SourceSerializer], responses=DryRunSerializer)
    @action(detail=False, url_path="dry-run")
    @one_at_a_time
    def dry_run(self, request: ApiRequest) -> Response:
        """Return what a batch would retry and what not, and why. Changes nothing."""
        dry_run = _dry_run(request)
        left_out = {}
        for reason, verdicts in dry_run.left_out.items():
            left_out[reason] = [verdict.job_id for verdict in verdicts]

        return Response(
            {
                "jobs": dry_run.jobs,
                "eligible": [candidate.verdict.job_id for candidate in dry_run.eligible],
                "core_seconds": dry_run.core_seconds,
                "left_out": left_out,
            }
        )

    @extend_schema(
        parameters=[SourceSerializer], responses={(200, "application/x-tar"): OpenApiTypes.BINARY}
    )
    @action(detail=False)
    @one_at_a_time
    def bundle(self, request: ApiRequest) -> HttpResponse:
        """Return the failed jobs that only their owners can submit again, as a tar for them."""
        content = retry_bundle(
            verdicts=_dry_run(request).only_by_owner, by=request.user, at=timezone.now()
        )
        return HttpResponse(content, content_type="application/x-tar")

    @command(BatchWriter, BatchReader, code=201, allowed=lambda user, _: may_hold_some(user))
    def create(self, *, by: User, **fields: Any) -> RetryBatch:
        """Retry all eligible jobs of a group, an incident, or one job.

        For approvers and shifters.
        """
        source = _source(by, fields)
        values = {name: value for name, value in fields.items() if name not in ("kind", "id")}
        return batches.plan_batch(source=source, by=by, **values)

    @command(BatchReasonWriter, BatchReader, allowed=batches.may_change)
    def cancel(self, batch: RetryBatch, **fields: Any) -> RetryBatch:
        """Cancel the jobs that are not released yet; released ones continue."""
        batches.cancel_batch(batch=batch, **fields)
        return self.get_object()

    @command(BatchReasonWriter, BatchReader, allowed=batches.may_change)
    def resume(self, batch: RetryBatch, **fields: Any) -> RetryBatch:
        """Resume a batch that stopped because too many retries failed again."""
        return batches.resume_batch(batch=batch, **fields)


def _dry_run(request: ApiRequest) -> DryRun:
    parameters = checked_data(SourceSerializer(data=request.query_params))
    limits = RetryLimits(parameters["attempts"], parameters["of_stage"])
    source = _source(request.user, parameters)
    return batches.dry_run(
        source=source,
        user=request.user,
        limits=limits,
        at=timezone.now(),
        with_planned=parameters["with_planned"],
    )


def _source(user: User, parameters: dict[str, Any]) -> Source:
    try:
        return source_or_404(user, parameters["kind"], parameters["id"])
    except Http404:
        raise InvalidFields({"id": ["Not found, or you do not have access."]}) from None
