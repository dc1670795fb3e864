"""Endpoints of probes: results from probe jobs, and the measured states."""

from typing import Any, ClassVar

from django.contrib.auth.models import AnonymousUser
from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.utils import extend_schema
from rest_framework import mixins, serializers
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.api import ApiViewSet
from apps.core.api.input import checked_data
from apps.core.api.views import StrictView
from apps.core.domain.tokens import bearer_token
from apps.hosts.domain.probes.results import store_results
from apps.hosts.domain.probes.states import current_states
from apps.hosts.domain.probes.tokens import read_probe_token
from apps.hosts.filters import MeasuredStates
from apps.hosts.models import MeasuredState
from apps.jobs.api.phases import PhasesWriter, StoredPhasesReader


class ProbeTokenAuthentication(BaseAuthentication):
    """Authenticates a probe job by the token in its environment."""

    def authenticate(self, request: Request) -> tuple[AnonymousUser, str] | None:
        text = bearer_token(request.headers.get("Authorization", ""))
        if not text:
            return None
        job_name = read_probe_token(text)
        if job_name is None:
            raise AuthenticationFailed("This is no valid token of a probe job, or it has expired.")
        return AnonymousUser(), job_name

    def authenticate_header(self, request: Request) -> str:
        return 'Bearer realm="probes"'


class ProbeTokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """Describes the tokens of probe jobs in the schema."""

    target_class = ProbeTokenAuthentication
    name = "probeToken"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer"}


class HasProbeToken(BasePermission):
    def has_permission(self, request: Request, view: Any) -> bool:
        return isinstance(request.auth, str)


class ProbeResultsView(StrictView):
    """Results of probes, as `ops-phase` reports them from probe jobs."""

    authentication_classes = [ProbeTokenAuthentication]
    permission_classes = [HasProbeToken]

    @extend_schema(
        operation_id="probe_results_create", request=PhasesWriter, responses=StoredPhasesReader
    )
    def post(self, request: Request) -> Response:
        """Store the results of a probe job's probes: phases with name, times, exit code and note.

        Repeating a report changes nothing. An invalid result does not affect the others.
        """
        report = checked_data(PhasesWriter(data=request.data))
        job_name: Any = request.auth
        stored = store_results(job_name=job_name, phases=report["phases"], at=timezone.now())
        return Response(StoredPhasesReader(stored).data)


class MeasuredStateReader(serializers.ModelSerializer[MeasuredState]):
    """The newest result of a probe on a host. Results have been alike since `since`."""

    cluster = serializers.CharField(source="cluster.name")
    probe = serializers.CharField(source="probe.name")
    service = serializers.SlugField(source="probe.service.slug", default=None, allow_null=True)

    class Meta:
        model = MeasuredState
        fields: ClassVar[list[str]] = [
            *("id", "cluster", "host", "probe", "service", "good", "message"),
            *("measured_at", "since"),
        ]
        read_only_fields = fields


class MeasuredStateViewSet(mixins.ListModelMixin, ApiViewSet[MeasuredState]):
    """What probes measured on each host. Results that are too old to say anything are left out."""

    serializer_class = MeasuredStateReader
    filterset_class = MeasuredStates

    def get_queryset(self) -> QuerySet[MeasuredState]:
        return current_states(timezone.now()).order_by("cluster__name", "host", "probe__name")
