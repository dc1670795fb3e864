"""Filters of exclusions of hosts."""

from typing import Any

import django_filters
from django.db.models import QuerySet

from apps.core.web.query import AnyOf
from apps.hosts.domain.known_hosts import short_name
from apps.hosts.models import HostExclusion


class Exclusions(AnyOf):
    """Filters of the list of exclusions; `host` may have its domain."""

    open = django_filters.BooleanFilter(field_name="ended_at", lookup_expr="isnull")
    automatic = django_filters.BooleanFilter()
    cluster = django_filters.CharFilter(field_name="cluster__name")
    host = django_filters.CharFilter(method="of_host")

    class Meta:
        model = HostExclusion
        fields: tuple[str, ...] = ()

    def of_host(
        self, exclusions: QuerySet[HostExclusion], name: str, value: Any
    ) -> QuerySet[HostExclusion]:
        return exclusions.filter(host=short_name(str(value)))
