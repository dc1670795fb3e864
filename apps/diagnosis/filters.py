"""URL filters of the failure pages and the API; an invalid value matches nothing."""

from typing import Any

import django_filters
from django import forms
from django.db.models import Q, QuerySet
from django.http import HttpRequest

from apps.accounts.domain.experiments import visible_experiments
from apps.accounts.models import Experiment
from apps.clusters.models import Cluster
from apps.clusters.schedulers.base import JobState
from apps.core.web.moments import MomentFilter
from apps.core.web.query import AnyOf
from apps.diagnosis.domain.groups.triage import has_in_readable_line
from apps.diagnosis.enums import (
    Category,
    ChangeState,
    CodeScope,
    GroupKind,
    GroupStatus,
    HarvestState,
    Role,
    VerdictKind,
)
from apps.diagnosis.models import (
    CauseTotals,
    ExitCodeMeaning,
    ExperimentPack,
    FailureGroup,
    KnownError,
    KnownErrorChange,
    Verdict,
)
from apps.jobs.domain.statistics.stages import ended_with_stage
from apps.jobs.enums import NONE
from apps.statusboard.models import Service

WINDOWS = [("24", "24 hours"), ("168", "7 days"), ("720", "30 days")]


def _visible_experiments(request: HttpRequest | None) -> QuerySet[Experiment]:
    """Return the experiments that a reader may choose: those that they may see."""
    return visible_experiments(getattr(request, "user", None))


class _NothingIfInvalid(AnyOf):
    """Filters of which an invalid one matches nothing."""

    def filter_queryset(self, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if self.form.errors:
            return queryset.none()
        return super().filter_queryset(queryset)


class _OfExperiment(_NothingIfInvalid):
    experiment = django_filters.ModelChoiceFilter(
        queryset=_visible_experiments, to_field_name="key", empty_label="All"
    )


class _OfGroups(_OfExperiment):
    """Filters by the group of a total or a verdict."""

    status = django_filters.ChoiceFilter(
        field_name="group__status", choices=GroupStatus.choices, empty_label="Any", label="Status"
    )
    kind = django_filters.ChoiceFilter(
        field_name="group__kind", choices=GroupKind.choices, empty_label="Any", label="Kind"
    )
    owner = django_filters.CharFilter(field_name="group__owner", max_length=150, label="Owner")
    q = django_filters.CharFilter(method="matching_text", label="Search", max_length=200)

    def matching_text(self, rows: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
        """Keep groups with this text in title, line, known error, service or number (F-12)."""
        matching = (
            Q(title__icontains=value)
            | Q(cause__icontains=value)
            | Q(service__iexact=value)
            | has_in_readable_line(value, self.request.user)
        )
        number = value.upper().removeprefix("F-")
        is_number = number.isascii() and number.isdigit() and len(number) < 10
        if is_number:
            matching |= Q(pk=int(number))
        # Groups are few. Joined to millions of verdicts, each verdict would be read.
        groups = FailureGroup.objects.filter(matching).values_list("pk", flat=True)
        return rows.filter(group__in=list(groups))


class FailureFilters(_OfGroups):
    """Filters of the hourly totals of failure groups."""

    hours = django_filters.ChoiceFilter(
        choices=WINDOWS, method="in_window", label="Period", empty_label=None
    )
    experiment = django_filters.ModelChoiceFilter(
        queryset=_visible_experiments, to_field_name="key", empty_label="All"
    )
    cluster = django_filters.ModelChoiceFilter(
        queryset=Cluster.objects.all(), to_field_name="name", empty_label="All"
    )
    verdict = django_filters.ChoiceFilter(choices=VerdictKind.choices, empty_label="Any verdict")
    stage = django_filters.CharFilter(lookup_expr="iexact")

    #: The filters that are not folded.
    FIRST = ("hours", "experiment", "q")

    class Meta:
        model = CauseTotals
        fields = [
            "hours",
            "experiment",
            "cluster",
            "verdict",
            "stage",
            "status",
            "kind",
            "owner",
            "q",
        ]

    def in_window(self, rows: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
        """Return all rows: the view applies the window, since its bounds also appear in links."""
        return rows


class FailedJobs(_OfGroups):
    """Filters of verdicts; `-` as cause or service matches verdicts without one.

    The interval is [start, end). The filters of failure groups are there too, so that each number
    can lead to its jobs.
    """

    verdict = django_filters.ChoiceFilter(choices=VerdictKind.choices, empty_label="Any verdict")
    group = django_filters.NumberFilter(widget=forms.HiddenInput, max_value=2**31 - 1)
    cause = django_filters.CharFilter(method="exactly", label="Known error")
    service = django_filters.CharFilter(method="of_service")
    cluster = django_filters.ModelChoiceFilter(
        field_name="job__cluster",
        queryset=Cluster.objects.all(),
        to_field_name="name",
        empty_label="All",
        label="Cluster",
    )
    request = django_filters.CharFilter(
        field_name="job__request_key", label="Request", max_length=64
    )
    stage = django_filters.CharFilter(method="of_stage", label="Stage", max_length=64)
    since = django_filters.ChoiceFilter(
        choices=[("succeeded", "Succeeded"), ("open", "Not succeeded")],
        method="since_then",
        label="Since then",
        empty_label="Any",
    )
    log = django_filters.ChoiceFilter(
        field_name="job__harvest__state",
        choices=HarvestState.choices,
        empty_label="Any",
        label="Log",
    )
    start = MomentFilter(field_name="ended_at", lookup_expr="gte", widget=forms.HiddenInput)
    end = MomentFilter(field_name="ended_at", lookup_expr="lt", widget=forms.HiddenInput)

    class Meta:
        model = Verdict
        fields = [
            "group",
            "verdict",
            "cause",
            "service",
            "experiment",
            "cluster",
            "request",
            "stage",
            "since",
            "log",
            "status",
            "kind",
            "owner",
            "q",
            "start",
            "end",
        ]

    def since_then(self, rows: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
        """Keep verdicts on jobs for which a later attempt or retry completed, or the others."""
        succeeded = Q(later_state=JobState.COMPLETED)
        return rows.filter(succeeded if value == "succeeded" else ~succeeded)

    def of_stage(self, rows: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
        return rows.filter(ended_with_stage(value), job__stage__iexact=value)

    def exactly(self, rows: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
        return rows.filter(**{name: "" if value == NONE else value})

    def of_service(self, rows: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
        """Keep verdicts that name a service, also if the status board names it so."""
        if value == NONE:
            return rows.filter(service="")
        slugs = Service.objects.filter(name__iexact=value).values_list("slug", flat=True)
        return rows.filter(service__in=[value, *slugs])


class FailureGroups(AnyOf):
    """Filters of failure groups in the API."""

    verdict = django_filters.ChoiceFilter(choices=VerdictKind.choices)
    status = django_filters.ChoiceFilter(choices=GroupStatus.choices)
    kind = django_filters.ChoiceFilter(choices=GroupKind.choices)
    owner = django_filters.CharFilter()
    service = django_filters.CharFilter()
    cause = django_filters.CharFilter()
    since = MomentFilter(field_name="last_seen_at", lookup_expr="gte")

    class Meta:
        model = FailureGroup
        fields = ["verdict", "status", "kind", "owner", "service", "cause", "since"]


_IN_STATE = {
    "enabled": Q(enabled=True),
    "disabled": Q(enabled=False),
    "passive": Q(passive=True, enabled=True),
    "own": Q(shipped=None),
}


class KnownErrors(_OfExperiment):
    """Filters of known errors, on the page and in the API."""

    q = django_filters.CharFilter(method="matching_text", label="Search", max_length=200)
    category = django_filters.ChoiceFilter(choices=Category.choices, empty_label="Any")
    role = django_filters.ChoiceFilter(choices=Role.choices, empty_label="Any")
    service = django_filters.CharFilter(lookup_expr="iexact", max_length=64)
    state = django_filters.ChoiceFilter(
        choices=[
            ("enabled", "Enabled"),
            ("disabled", "Disabled"),
            ("passive", "Passive"),
            ("own", "Made here"),
        ],
        method="in_state",
        label="State",
        empty_label="Any",
    )

    class Meta:
        model = KnownError
        fields = ["q", "category", "role", "service", "experiment", "state"]

    def matching_text(self, rows: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
        """Keep known errors with this text in ID, title, pattern, example, service or owner."""
        names = ("id", "title", "regex", "example", "service", "owner")
        matching = Q()
        for field in names:
            matching |= Q(**{f"{field}__icontains": value})
        return rows.filter(matching)

    def in_state(self, rows: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
        return rows.filter(_IN_STATE[value])


class ExitCodes(_NothingIfInvalid):
    """Filters of the meanings of exit codes."""

    number = django_filters.NumberFilter(label="Number", min_value=-(2**31), max_value=2**31 - 1)
    scope = django_filters.ChoiceFilter(choices=CodeScope.choices, empty_label="Any")
    name = django_filters.CharFilter(lookup_expr="iexact", max_length=64, label="Name")
    category = django_filters.ChoiceFilter(choices=Category.choices, empty_label="Any")
    q = django_filters.CharFilter(method="matching_text", label="Search", max_length=200)

    class Meta:
        model = ExitCodeMeaning
        fields = ["number", "scope", "name", "category", "q"]

    def matching_text(self, rows: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
        """Keep codes with this text in title, help or source."""
        return rows.filter(
            Q(title__icontains=value) | Q(help__icontains=value) | Q(source__icontains=value)
        )


class KnownErrorChanges(AnyOf):
    """Filters of changes of known errors in the API."""

    known_error = django_filters.CharFilter(max_length=64)
    state = django_filters.ChoiceFilter(choices=ChangeState.choices)

    class Meta:
        model = KnownErrorChange
        fields = ["known_error", "state"]


class ExperimentPacks(AnyOf):
    """Filters of experiment packs in the API."""

    experiment = django_filters.CharFilter(
        field_name="experiment__key", lookup_expr="iexact", max_length=32
    )
    state = django_filters.ChoiceFilter(choices=ChangeState.choices)

    class Meta:
        model = ExperimentPack
        fields = ["experiment", "state"]
