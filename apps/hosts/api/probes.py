"""Endpoints of probes: results from probe jobs, and the measured states."""

from typing import Any, ClassVar

from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import mixins, serializers
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.api import ApiViewSet
from apps.core.api.input import checked_data
from apps.core.api.machine_tokens import HasMachineToken, MachineTokenAuthentication
from apps.core.api.views import StrictView
from apps.hosts.domain.probes.results import store_results
from apps.hosts.domain.probes.states import current_states
from apps.hosts.domain.probes.tokens import read_probe_token
from apps.hosts.filters import MeasuredStates
from apps.hosts.models import MeasuredState
from apps.jobs.api.phases import PhasesWriter, StoredPhasesReader


class ProbeTokenAuthentication(MachineTokenAuthentication):
    """Authenticates a probe job by the token in its environment. `request.auth` is its name."""

    realm = "probes"
    scheme_name = "probeToken"

    def read_token(self, token: str) -> str:
        job_name = read_probe_token(token)
        if job_name is None:
            raise AuthenticationFailed("This is no valid token of a probe job, or it has expired.")
        return job_name


class ProbeResultsView(StrictView):
    """Results of probes, as `ops-phase` reports them from probe jobs."""

    authentication_classes = [ProbeTokenAuthentication]
    permission_classes = [HasMachineToken]

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
            "id",
            "cluster",
            "host",
            "probe",
            "service",
            "good",
            "message",
            "measured_at",
            "since",
        ]
        read_only_fields = fields


class MeasuredStateViewSet(mixins.ListModelMixin, ApiViewSet[MeasuredState]):
    """What probes measured on each host. Results that are too old to say anything are left out."""

    serializer_class = MeasuredStateReader
    filterset_class = MeasuredStates

    def get_queryset(self) -> QuerySet[MeasuredState]:
        return current_states(timezone.now()).order_by("cluster__name", "host", "probe__name")
