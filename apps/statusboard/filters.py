"""Filters of the API's list of incidents."""

import django_filters

from apps.core.web.moments import MomentFilter
from apps.core.web.query import AnyOf
from apps.statusboard.models import Incident


class IncidentFilter(AnyOf):
    service = django_filters.CharFilter(field_name="service__slug")
    source = django_filters.CharFilter(field_name="source__slug")
    open = django_filters.BooleanFilter(field_name="ended_at", lookup_expr="isnull")
    started_after = MomentFilter(field_name="started_at", lookup_expr="gte")
    started_before = MomentFilter(field_name="started_at", lookup_expr="lt")

    class Meta:
        model = Incident
        fields = ["state"]
