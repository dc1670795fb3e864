"""Filters of exclusions and histories of hosts, and of measured states."""

from typing import Any

import django_filters
from django.db.models import QuerySet
from django.utils import timezone

from apps.core.web.query import AnyOf
from apps.hosts.domain.known_hosts import short_name
from apps.hosts.models import HostExclusion, HostSpan, MeasuredState


class Exclusions(AnyOf):
    """Filters of the list of exclusions; `host` may have its domain."""

    open = django_filters.BooleanFilter(method="in_effect_now")
    automatic = django_filters.BooleanFilter()
    cluster = django_filters.CharFilter(field_name="cluster__name")
    host = django_filters.CharFilter(method="of_host")

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

    def of_host(
        self, exclusions: QuerySet[HostExclusion], name: str, value: Any
    ) -> QuerySet[HostExclusion]:
        return exclusions.filter(host=short_name(str(value)))


class HostSpans(AnyOf):
    """Filters of the history of hosts; `host` may have its domain."""

    open = django_filters.BooleanFilter(field_name="until", lookup_expr="isnull")
    cluster = django_filters.CharFilter(field_name="cluster__name")
    state = django_filters.CharFilter()
    rebooted = django_filters.BooleanFilter()
    host = django_filters.CharFilter(method="of_host")

    class Meta:
        model = HostSpan
        fields: tuple[str, ...] = ()

    def of_host(self, spans: QuerySet[HostSpan], name: str, value: Any) -> QuerySet[HostSpan]:
        return spans.filter(host=short_name(str(value)))


class MeasuredStates(AnyOf):
    """Filters of measured states; `host` may have its domain."""

    good = django_filters.BooleanFilter()
    cluster = django_filters.CharFilter(field_name="cluster__name")
    site = django_filters.CharFilter(field_name="cluster__site__name")
    probe = django_filters.CharFilter(field_name="probe__name")
    service = django_filters.CharFilter(field_name="probe__service__slug")
    host = django_filters.CharFilter(method="of_host")

    class Meta:
        model = MeasuredState
        fields: tuple[str, ...] = ()

    def of_host(
        self, states: QuerySet[MeasuredState], name: str, value: Any
    ) -> QuerySet[MeasuredState]:
        return states.filter(host=short_name(str(value)))
