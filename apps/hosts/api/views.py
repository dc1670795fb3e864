"""Exclusions of hosts in the API. Everyone can read them; the OPG can change them."""

from typing import Any

from django.db.models import QuerySet
from rest_framework import mixins

from apps.accounts.api import ApiViewSet, command
from apps.accounts.models import User
from apps.hosts.api.serializers import (
    HostExclusionReader,
    HostExclusionWriter,
    HostExtensionWriter,
    HostReturnWriter,
)
from apps.hosts.domain.exclusions import (
    exclude_host,
    extend_exclusion,
    list_exclusions,
    return_host,
)
from apps.hosts.filters import Exclusions
from apps.hosts.models import HostExclusion
from apps.hosts.permissions import may_exclude_hosts


def _may(user: User, _: Any) -> bool:
    return may_exclude_hosts(user)


class HostExclusionViewSet(
    mixins.ListModelMixin, mixins.RetrieveModelMixin, ApiViewSet[HostExclusion]
):
    """Hosts that new jobs of the portal do not run on, and earlier exclusions; newest first."""

    serializer_class = HostExclusionReader
    filterset_class = Exclusions
    lookup_value_regex = r"\d{1,18}"

    def get_queryset(self) -> QuerySet[HostExclusion]:
        return list_exclusions()

    @command(HostExclusionWriter, HostExclusionReader, code=201, allowed=_may)
    def create(self, **fields: Any) -> HostExclusion:
        """Exclude a host from new arrays and retries. For approvers, shifters and admins."""
        return exclude_host(**fields)

    @command(HostExtensionWriter, HostExclusionReader, allowed=_may)
    def extend(self, exclusion: HostExclusion, **fields: Any) -> HostExclusion:
        """Let an exclusion expire at another time."""
        return extend_exclusion(exclusion=exclusion, **fields)

    @command(HostReturnWriter, HostExclusionReader, allowed=_may, url_path="return")
    def return_host(self, exclusion: HostExclusion, **fields: Any) -> HostExclusion:
        """End an exclusion: the host gets new jobs again."""
        return return_host(exclusion=exclusion, **fields)
