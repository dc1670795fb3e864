"""Filters of exclusions and histories of hosts, and of measured states."""

from typing import Any

import django_filters
from django.db.models import QuerySet
from django.utils import timezone

from apps.core.web.query import AnyOf
from apps.hosts.domain.known_hosts import short_name
from apps.hosts.models import HostExclusion, HostSpan, MeasuredState


class OfHosts(AnyOf):
    """Filters of rows about hosts; `host` may have its domain."""

    cluster = django_filters.CharFilter(field_name="cluster__name")
    host = django_filters.CharFilter(method="of_host")

    def of_host(self, rows: QuerySet[Any], name: str, value: Any) -> QuerySet[Any]:
        return rows.filter(host=short_name(str(value)))


class Exclusions(OfHosts):
    """Filters of the list of exclusions."""

    open = django_filters.BooleanFilter(method="in_effect_now")
    automatic = django_filters.BooleanFilter()

    class Meta:
        model = HostExclusion
        fields: tuple[str, ...] = ()

    def in_effect_now(
        self, exclusions: QuerySet[HostExclusion], name: str, value: bool
    ) -> QuerySet[HostExclusion]:
        current = HostExclusion.objects.in_effect(timezone.now()).values("pk")
        if value:
            return exclusions.filter(pk__in=current)
        return exclusions.exclude(pk__in=current)


class HostSpans(OfHosts):
    """Filters of the history of hosts."""

    open = django_filters.BooleanFilter(field_name="until", lookup_expr="isnull")
    state = django_filters.CharFilter()
    rebooted = django_filters.BooleanFilter()

    class Meta:
        model = HostSpan
        fields: tuple[str, ...] = ()


class MeasuredStates(OfHosts):
    """Filters of measured states."""

    good = django_filters.BooleanFilter()
    site = django_filters.CharFilter(field_name="cluster__site__name")
    probe = django_filters.CharFilter(field_name="probe__name")
    service = django_filters.CharFilter(field_name="probe__service__slug")

    class Meta:
        model = MeasuredState
        fields: tuple[str, ...] = ()
