"""The history of hosts in the API. Everyone can read it."""

from typing import ClassVar

from django.db.models import QuerySet
from rest_framework import mixins, serializers

from apps.accounts.api import ApiViewSet
from apps.clusters.schedulers.base import HostState
from apps.hosts.domain.history import host_spans
from apps.hosts.filters import HostSpans
from apps.hosts.models import HostSpan


class HostSpanReader(serializers.ModelSerializer[HostSpan]):
    """A time in which the scheduler gave a host the same state and reason.

    It lasts if `until` is null. After `seen_at`, the last look that found it, nothing is known.
    `rebooted` means that it began with a boot, at `booted_at`.
    """

    cluster = serializers.CharField(source="cluster.name")
    state = serializers.ChoiceField([(state.value, state.value) for state in HostState])

    class Meta:
        model = HostSpan
        fields: ClassVar[list[str]] = [
            "id",
            "cluster",
            "host",
            "state",
            "words",
            "reason",
            "booted_at",
            "rebooted",
            "since",
            "seen_at",
            "until",
        ]
        read_only_fields = fields


class HostHistoryViewSet(mixins.ListModelMixin, ApiViewSet[HostSpan]):
    """States of hosts as their schedulers listed them, newest first; one row for each change."""

    noun = "host state"
    serializer_class = HostSpanReader
    filterset_class = HostSpans

    def get_queryset(self) -> QuerySet[HostSpan]:
        return host_spans()
