"""Filters in the address of the archive's pages and API; a value that makes no sense finds nothing."""

from typing import Any

import django_filters
from django import forms
from django.db.models import QuerySet

from apps.archive.models import ArchivedJob
from apps.clusters.models import Cluster


class ArchivedJobs(django_filters.FilterSet):
    """Archived jobs by what is known of them without reading a script."""

    cluster = django_filters.ModelChoiceFilter(queryset=Cluster.objects.all(), to_field_name="name", empty_label="All")
    job_id = django_filters.CharFilter(label="Job")
    request = django_filters.CharFilter(field_name="request_key", lookup_expr="iexact", label="Request")
    stage = django_filters.CharFilter()
    since = django_filters.DateFilter(
        field_name="submitted_at__date",
        lookup_expr="gte",
        label="Submitted from",
        widget=forms.DateInput(attrs={"type": "date"}),
    )
    until = django_filters.DateFilter(
        field_name="submitted_at__date",
        lookup_expr="lte",
        label="To",
        widget=forms.DateInput(attrs={"type": "date"}),
    )
    script = django_filters.CharFilter(method="with_script", label="Script", widget=forms.HiddenInput)

    class Meta:
        model = ArchivedJob
        fields = ["cluster", "job_id", "request", "stage", "since", "until", "script"]

    def with_script(self, rows: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
        """Keep the jobs whose script has this SHA-256, in hexadecimal."""
        try:
            return rows.filter(script_id=bytes.fromhex(value))
        except ValueError:
            return rows.none()
