"""Filters of the job list, for page and API."""

from typing import Any

import django_filters as filters
from django import forms
from django.db.models import QuerySet

from apps.accounts.models import Experiment
from apps.accounts.permissions import scope_of
from apps.clusters.models import Cluster, Site
from apps.core.web.moments import MomentFilter
from apps.core.web.query import AnyOf
from apps.jobs.domain.jobs import matches_host, matches_id
from apps.jobs.enums import (
    ANY_FAILURE,
    FAILED_STATES,
    INTERRUPTED,
    INTERRUPTED_STATES,
    NONE,
    NOT_COMPLETED,
    STATE_CHOICES,
    Proof,
)
from apps.jobs.models import Job

_GROUPS = {
    ANY_FAILURE: FAILED_STATES,
    INTERRUPTED: INTERRUPTED_STATES,
    NOT_COMPLETED: FAILED_STATES | INTERRUPTED_STATES,
}
_INT = {"min_value": -(2**31), "max_value": 2**31 - 1}


def _experiments(request: Any) -> QuerySet[Experiment]:
    scope = scope_of(getattr(request, "user", None))
    return Experiment.objects.all() if scope.sees_all else Experiment.objects.filter(pk__in=scope.experiments)


def _moment(example: str) -> forms.DateTimeInput:
    return forms.DateTimeInput(attrs={"placeholder": example, "autocomplete": "off"})


class WholeNumberFilter(filters.NumberFilter):
    field_class = forms.IntegerField


class JobFilter(AnyOf):
    """Filters of the job list; texts match exactly, hosts also without their domain."""

    job = filters.CharFilter(method="by_id", label="Job ID", max_length=64)
    state = filters.ChoiceFilter(
        method="by_state",
        label="State",
        empty_label="Any state",
        choices=[
            (ANY_FAILURE, "Any failure"),
            *STATE_CHOICES,
            (INTERRUPTED, "Interrupted"),
            (NOT_COMPLETED, "Not completed"),
        ],
    )
    experiment = filters.ModelChoiceFilter(queryset=_experiments, to_field_name="key", empty_label="All")
    cluster = filters.ModelChoiceFilter(queryset=Cluster.objects.all(), to_field_name="name", empty_label="All")
    request = filters.CharFilter(field_name="request_key", label="Request", max_length=64)
    claims = filters.CharFilter(method="by_claim", label="Claimed request, unproven", max_length=64)
    stage = filters.CharFilter(method="by_stage", label="Stage", max_length=64)
    site = filters.ModelChoiceFilter(
        queryset=Site.objects.all(), to_field_name="name", empty_label="All", null_label="Unknown", null_value=NONE
    )
    host = filters.CharFilter(method="by_host", label="Host", max_length=255)
    user = filters.CharFilter(label="User", max_length=255)
    account = filters.CharFilter(label="Account", max_length=255)
    exit_code = WholeNumberFilter(label="Exit code", widget=forms.TextInput(attrs={"inputmode": "numeric"}), **_INT)
    ended_from = MomentFilter(
        field_name="ended_at", lookup_expr="gte", label="Finished from", widget=_moment("2026-11-20 09:00")
    )
    ended_to = MomentFilter(
        field_name="ended_at", lookup_expr="lt", label="Finished before", widget=_moment("2026-11-21")
    )

    class Meta:
        model = Job
        fields: list[str] = []

    #: Shown at once; the others behind "More filters".
    FIRST = ("job", "state", "experiment", "request", "host", "user")

    def by_id(self, jobs: QuerySet[Job], name: str, value: str) -> QuerySet[Job]:
        return jobs.filter(matches_id(value))

    def by_host(self, jobs: QuerySet[Job], name: str, value: str) -> QuerySet[Job]:
        return jobs.filter(matches_host(value))

    def by_claim(self, jobs: QuerySet[Job], name: str, value: str) -> QuerySet[Job]:
        return jobs.filter(claimed_key=value, proof=Proof.CLAIMED)

    def by_stage(self, jobs: QuerySet[Job], name: str, value: str) -> QuerySet[Job]:
        return jobs.filter(stage="") if value == NONE else jobs.filter(stage__iexact=value)

    def by_state(self, jobs: QuerySet[Job], name: str, value: str) -> QuerySet[Job]:
        return jobs.filter(state__in=sorted(_GROUPS.get(value, {value})))
