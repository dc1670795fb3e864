"""Filters in the address of the archive's pages and API; a value that makes no sense finds nothing."""

from datetime import date, datetime, time
from typing import Any

import django_filters
from django import forms
from django.db.models import QuerySet
from django.utils import timezone

from apps.archive.models import ArchivedJob
from apps.clusters.models import Cluster

_DAY = forms.DateInput(attrs={"type": "date"})


def _moment(day: date, clock: time) -> datetime:
    """Return a time of the reader's day, as the index knows it."""
    return timezone.make_aware(datetime.combine(day, clock))


class ArchivedJobs(django_filters.FilterSet):
    """Archived jobs by what is known of them without reading a script."""

    cluster = django_filters.ModelChoiceFilter(queryset=Cluster.objects.all(), to_field_name="name", empty_label="All")
    job = django_filters.CharFilter(field_name="job_id", label="Job id", max_length=64)
    request = django_filters.CharFilter(field_name="request_key", lookup_expr="iexact", label="Request", max_length=64)
    stage = django_filters.CharFilter(max_length=64)
    since = django_filters.DateFilter(method="from_day", label="Submitted from", widget=_DAY)
    until = django_filters.DateFilter(method="to_day", label="To", widget=_DAY)
    script = django_filters.CharFilter(method="with_script", label="Script", widget=forms.HiddenInput)

    class Meta:
        model = ArchivedJob
        fields = ["cluster", "job", "request", "stage", "since", "until", "script"]

    def from_day(self, rows: QuerySet[Any], name: str, value: date) -> QuerySet[Any]:
        return rows.filter(submitted_at__gte=_moment(value, time.min))

    def to_day(self, rows: QuerySet[Any], name: str, value: date) -> QuerySet[Any]:
        return rows.filter(submitted_at__lte=_moment(value, time.max))

    def with_script(self, rows: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
        """Keep the jobs whose script has this SHA-256, in hexadecimal."""
        try:
            return rows.filter(script__sha256=bytes.fromhex(value))
        except ValueError:
            return rows.none()
