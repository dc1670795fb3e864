"""Endpoints with which jobs report phases, and the tokens for them."""

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.exceptions import AuthenticationFailed, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.api import ApiRequest, ApiView
from apps.accounts.models import Experiment
from apps.accounts.permissions import scope_of
from apps.clusters.models import Cluster
from apps.core.api.input import checked_data
from apps.core.api.machine_tokens import HasMachineToken, MachineTokenAuthentication
from apps.core.api.views import StrictView
from apps.jobs.api.serializers import RecordProblemReader
from apps.jobs.domain.phases.reports import StoredPhases, store_phases
from apps.jobs.domain.phases.tokens import (
    LIFETIME,
    PhaseToken,
    issue_phase_token,
    maker_has_role,
    read_phase_token,
)
from apps.production.models import Request as ProductionRequest

#: Maximum phases in one report: a job may have collected them while the portal was unreachable.
_MOST_PHASES = 500


class PhaseTokenAuthentication(MachineTokenAuthentication):
    """Authenticates a job by the token in its environment."""

    realm = "phases"
    scheme_name = "phaseToken"

    def read_token(self, token: str) -> PhaseToken:
        phase_token = read_phase_token(token, at=timezone.now())
        if phase_token is None:
            raise AuthenticationFailed("This is no valid token for phases, or it has expired.")
        if not maker_has_role(phase_token):
            raise AuthenticationFailed(
                "The user who created this token no longer has a role in its experiment. "
                "Create another token."
            )
        return phase_token


class PhasesWriter(serializers.Serializer[Any]):
    """Phases of one job. `job_id` is written as the portal shows it, such as 4711_3."""

    job_id = serializers.CharField(max_length=64)
    host = serializers.CharField(max_length=255, required=False, default="", allow_blank=True)
    cpu_model = serializers.CharField(
        max_length=255,
        required=False,
        default="",
        allow_blank=True,
        help_text="The CPU model of the host.",
    )
    phases = serializers.ListField(
        child=serializers.JSONField(),
        max_length=_MOST_PHASES,
        help_text=(
            "Objects with name, started_at, and once it has ended ended_at, exit_code and "
            "cpu_seconds."
        ),
    )


class StoredPhasesReader(serializers.Serializer[Any]):
    """How many phases were stored, and the problems."""

    new = serializers.IntegerField()
    changed = serializers.IntegerField()
    unchanged = serializers.IntegerField()
    rejected = serializers.IntegerField()
    problems = serializers.SerializerMethodField()

    @extend_schema_field(RecordProblemReader(many=True))
    def get_problems(self, done: StoredPhases) -> list[dict[str, Any]]:
        return [{"record": number, "reason": reason} for number, reason in done.problems]


class PhasesView(StrictView):
    """Phases of jobs, as the jobs report them."""

    authentication_classes = [PhaseTokenAuthentication]
    permission_classes = [HasMachineToken]

    @extend_schema(operation_id="phases_create", request=PhasesWriter, responses=StoredPhasesReader)
    def post(self, request: Request) -> Response:
        """Store phases of one job.

        Repeating a report changes nothing. An invalid phase does not affect the others.
        """
        report = checked_data(PhasesWriter(data=request.data))
        token: Any = request.auth
        return Response(
            StoredPhasesReader(store_phases(token=token, at=timezone.now(), **report)).data
        )


class PhaseTokenWriter(serializers.Serializer[Any]):
    """The jobs that the token is for: those of a request, or of an experiment without a request."""

    cluster = serializers.SlugRelatedField(slug_field="name", queryset=Cluster.objects.all())
    experiment = serializers.SlugRelatedField(slug_field="key", queryset=Experiment.objects.all())
    request = serializers.CharField(max_length=64, required=False, default="", allow_blank=True)
    stage = serializers.CharField(max_length=64, required=False, default="", allow_blank=True)


class PhaseTokenReader(serializers.Serializer[Any]):
    token = serializers.CharField(
        help_text="For OPSPORTAL_PHASE_TOKEN. It counts for the first job array that uses it."
    )
    expires_at = serializers.DateTimeField()


class PhaseTokensView(ApiView):
    """Tokens for jobs that the portal does not submit."""

    @extend_schema(
        operation_id="phase_tokens_create",
        request=PhaseTokenWriter,
        responses={201: PhaseTokenReader},
    )
    def post(self, request: ApiRequest) -> Response:
        """Create a token with which the jobs of one array report their phases.

        Only members of the experiment can do this.
        """
        fields = checked_data(PhaseTokenWriter(data=request.data))
        experiment: Experiment = fields["experiment"]
        if not scope_of(request.user).sees(experiment.pk):
            raise ValidationError({"experiment": ["Not found, or you do not have access."]})
        key = fields["request"]
        if key and not ProductionRequest.objects.filter(key=key, experiment=experiment).exists():
            raise ValidationError({"request": ["This experiment has no such request."]})
        at = timezone.now()
        token = issue_phase_token(
            user=request.user,
            cluster_id=fields["cluster"].pk,
            experiment_id=experiment.pk,
            request_key=key,
            stage=fields["stage"],
            at=at,
        )
        return Response(
            PhaseTokenReader({"token": token, "expires_at": at + LIFETIME}).data, status=201
        )
