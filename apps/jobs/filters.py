"""Filters of the job list, for page and API."""

from datetime import datetime
from typing import Any

import django_filters as filters
from django import forms
from django.db.models import Q, QuerySet
from django.db.models.functions import ExtractHour
from django.http import QueryDict

from apps.accounts.domain.experiments import visible_experiments
from apps.accounts.models import Experiment
from apps.clusters.models import Cluster, Site
from apps.core.web.moments import MomentFilter
from apps.core.web.query import AnyOf
from apps.jobs.domain.records.jobs import matches_host, matches_id
from apps.jobs.domain.statistics.stages import ended_with_stage
from apps.jobs.domain.statistics.windows import (
    WEEKDAYS,
    hour_of_week_expression,
    hours_with,
    portal_zone,
    window_names,
)
from apps.jobs.enums import (
    ANY_FAILURE,
    FAILED_STATES,
    INTERRUPTED,
    INTERRUPTED_STATES,
    NONE,
    NOT_COMPLETED,
    PROBE_JOB_PREFIX,
    STATE_CHOICES,
    ProbeJobs,
    Proof,
)
from apps.jobs.models import Job

_GROUPS = {
    ANY_FAILURE: FAILED_STATES,
    INTERRUPTED: INTERRUPTED_STATES,
    NOT_COMPLETED: FAILED_STATES | INTERRUPTED_STATES,
}
_HOURS = [(f"{hour:02d}", f"{hour:02d}") for hour in range(24)]
_INT = {"min_value": -(2**31), "max_value": 2**31 - 1}


def _experiments(request: Any) -> QuerySet[Experiment]:
    return visible_experiments(getattr(request, "user", None))


def _moment(example: str) -> forms.DateTimeInput:
    return forms.DateTimeInput(attrs={"placeholder": example, "autocomplete": "off"})


class WholeNumberFilter(filters.NumberFilter):
    field_class = forms.IntegerField


class ProbeJobsFilter(filters.ChoiceFilter):
    """Hide the portal's probe jobs or list them alone, by their names.

    Without a value, they are listed like other jobs.
    """

    def __init__(self) -> None:
        super().__init__(label="Probe jobs", choices=ProbeJobs.choices, empty_label=None)

    def filter(self, qs: QuerySet[Any], value: str) -> QuerySet[Any]:
        if value == ProbeJobs.HIDE:
            return qs.exclude(name__startswith=PROBE_JOB_PREFIX)
        if value == ProbeJobs.ONLY:
            return qs.filter(name__startswith=PROBE_JOB_PREFIX)
        return qs


def with_probe_choice(query: QueryDict, filterset: type[AnyOf]) -> QueryDict:
    """Return the query of a page with a value for the filter `probes`.

    A list without any filter hides probe jobs. One with filters shows them: counts and pages of
    hosts link to it, and their figures include probe jobs.
    """
    if query.get("probes"):
        return query
    is_filtered = any(query.get(name) for name in filterset.base_filters)
    changed = query.copy()
    changed["probes"] = ProbeJobs.SHOW if is_filtered else ProbeJobs.HIDE
    return changed


class JobFilter(AnyOf):
    """Filters of the job list. Text must match exactly; hosts also match without their domain."""

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
    experiment = filters.ModelChoiceFilter(
        queryset=_experiments,
        to_field_name="key",
        empty_label="All",
        null_label="No experiment",
        null_value=NONE,
    )
    cluster = filters.ModelChoiceFilter(
        queryset=Cluster.objects.all(), to_field_name="name", empty_label="All"
    )
    request = filters.CharFilter(method="by_request", label="Request", max_length=64)
    claims = filters.CharFilter(method="by_claim", label="Claimed request, unproven", max_length=64)
    stage = filters.CharFilter(method="by_stage", label="Stage", max_length=64)
    site = filters.ModelChoiceFilter(
        queryset=Site.objects.all(),
        to_field_name="name",
        empty_label="All",
        null_label="Unknown",
        null_value=NONE,
    )
    host = filters.CharFilter(method="by_host", label="Host", max_length=255)
    user = filters.CharFilter(method="by_text", label="User", max_length=255)
    account = filters.CharFilter(method="by_text", label="Account", max_length=255)
    exit_code = WholeNumberFilter(
        label="Exit code", widget=forms.TextInput(attrs={"inputmode": "numeric"}), **_INT
    )
    signal = WholeNumberFilter(
        label="Signal", widget=forms.TextInput(attrs={"inputmode": "numeric"}), **_INT
    )
    release = filters.CharFilter(method="by_text", label="Release", max_length=100)
    cpu_model = filters.CharFilter(method="by_text", label="CPU model", max_length=255)
    reason = filters.CharFilter(method="by_reason", label="Held reason", max_length=255)
    verdict = filters.CharFilter(method="by_diagnosis", label="Verdict", max_length=16)
    cause = filters.CharFilter(method="by_diagnosis", label="Cause", max_length=64)
    hour = filters.ChoiceFilter(
        method="by_hour",
        label="Hour of day",
        empty_label="Any",
        choices=_HOURS,
    )
    weekday = filters.ChoiceFilter(
        method="by_hour",
        label="Weekday",
        empty_label="Any",
        choices=[(day, day) for day in WEEKDAYS],
    )
    window = filters.ChoiceFilter(
        method="by_hour",
        label="Time window",
        empty_label="Any",
        choices=lambda: [(w, w) for w in window_names()],
    )
    started_hour = filters.ChoiceFilter(
        method="by_start_hour",
        label="Started in hour of day",
        empty_label="Any",
        choices=_HOURS,
    )
    started_from = MomentFilter(
        method="by_start", label="Started from", widget=_moment("2026-11-20 09:00")
    )
    started_to = MomentFilter(
        field_name="started_at",
        lookup_expr="lt",
        label="Started before",
        widget=_moment("2026-11-21"),
    )
    ended_from = MomentFilter(
        field_name="ended_at",
        lookup_expr="gte",
        label="Finished from",
        widget=_moment("2026-11-20 09:00"),
    )
    ended_to = MomentFilter(
        field_name="ended_at",
        lookup_expr="lt",
        label="Finished before",
        widget=_moment("2026-11-21"),
    )
    probes = ProbeJobsFilter()

    class Meta:
        model = Job
        fields: list[str] = []

    #: Always shown; the others are behind "More filters".
    FIRST = ("job", "state", "experiment", "request", "host", "user", "probes")

    def by_id(self, jobs: QuerySet[Job], name: str, value: str) -> QuerySet[Job]:
        return jobs.filter(matches_id(value))

    def by_host(self, jobs: QuerySet[Job], name: str, value: str) -> QuerySet[Job]:
        if value == NONE:
            return jobs.filter(host="")
        return jobs.filter(matches_host(value))

    def by_claim(self, jobs: QuerySet[Job], name: str, value: str) -> QuerySet[Job]:
        return jobs.filter(claimed_key=value, proof=Proof.CLAIMED)

    def by_stage(self, jobs: QuerySet[Job], name: str, value: str) -> QuerySet[Job]:
        if value == NONE:
            return jobs.filter(stage="")
        return jobs.filter(stage__iexact=value)

    def by_request(self, jobs: QuerySet[Job], name: str, value: str) -> QuerySet[Job]:
        return self.by_text(jobs, "request_key", value)

    def by_text(self, jobs: QuerySet[Job], name: str, value: str) -> QuerySet[Job]:
        return jobs.filter(**{name: "" if value == NONE else value})

    def by_reason(self, jobs: QuerySet[Job], name: str, value: str) -> QuerySet[Job]:
        return jobs.filter(reason__in=["", "None"] if value == NONE else [value])

    def by_diagnosis(self, jobs: QuerySet[Job], name: str, value: str) -> QuerySet[Job]:
        """Filter by a field of the verdict; `-` matches jobs without that field or verdict."""
        if value == NONE:
            return jobs.filter(Q(verdict=None) | Q(**{f"verdict__{name}": ""}))
        return jobs.filter(**{f"verdict__{name}": value})

    def by_hour(self, jobs: QuerySet[Job], name: str, value: str) -> QuerySet[Job]:
        """Filter by the time when jobs ended, in the portal's time zone."""
        return jobs.alias(hour_of_week=hour_of_week_expression()).filter(
            hour_of_week__in=hours_with(name, value)
        )

    def by_start(self, jobs: QuerySet[Job], name: str, value: datetime) -> QuerySet[Job]:
        # A job ends after it starts; the second condition lets PostgreSQL skip earlier months.
        return jobs.filter(started_at__gte=value, ended_at__gte=value)

    def by_start_hour(self, jobs: QuerySet[Job], name: str, value: str) -> QuerySet[Job]:
        """Filter by the hour in which jobs started, in the portal's time zone."""
        hour = ExtractHour("started_at", tzinfo=portal_zone())
        return jobs.alias(start_hour=hour).filter(start_hour=int(value))

    def by_state(self, jobs: QuerySet[Job], name: str, value: str) -> QuerySet[Job]:
        return jobs.filter(state__in=sorted(_GROUPS.get(value, {value})))


class ListedJobs(JobFilter):
    """Filters of the jobs in the database, not of archived ones or of totals."""

    def by_stage(self, jobs: QuerySet[Job], name: str, value: str) -> QuerySet[Job]:
        of_stage = super().by_stage(jobs, name, value)
        return of_stage if value == NONE else of_stage.filter(ended_with_stage(value))
