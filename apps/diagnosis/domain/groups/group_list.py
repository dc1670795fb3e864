"""Read failure groups from hourly and daily totals, counting the jobs that a user may see."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, NamedTuple

from django.db.models import Max, Min, OuterRef, QuerySet, Subquery, Sum

from apps.accounts.models import Experiment, User
from apps.clusters.models import Cluster
from apps.core.domain.bulk import rows_where_any
from apps.diagnosis.domain.groups.follow_ups import describe_follow_ups
from apps.diagnosis.domain.groups.waits import waits_by_service
from apps.diagnosis.enums import (
    SECTION_OF,
    TAKEN_CARE_OF,
    FollowUp,
    GroupKind,
    GroupSection,
    GroupStatus,
    VerdictKind,
)
from apps.diagnosis.models import CauseTotals, FailureGroup, KnownError
from apps.diagnosis.wording import step_of

SPARK_HOURS = 24
FACET_VALUES = 8
_SECTIONS = list(GroupSection)
_COLUMNS = ("id", "kind", "status", "verdict", "owner", "first_seen_at")


@dataclass(kw_only=True)
class GroupRow:
    """A group with its figures: jobs, those that succeeded later, and core seconds.

    `add_details` adds the group itself and the other fields for the rows of a page.
    """

    pk: int
    kind: str
    status: str
    verdict: str
    owner: str
    first_seen_at: datetime
    jobs: int
    succeeded: int
    core_seconds: int
    #: Of the jobs that did not succeed since, how many have which follow-up.
    not_succeeded: Mapping[FollowUp, int] = field(default_factory=dict)
    group: FailureGroup = field(init=False)
    first: datetime = field(init=False)
    last: datetime = field(init=False)
    experiments: list[tuple[str, int]] = field(default_factory=list)
    hourly: list[int] = field(default_factory=list)
    spark: str = ""
    #: What to do while the group's service is down, from `waits.waits_by_service`.
    wait: str = ""
    #: The advice of the known error that is the cause of the group, if any.
    advice: str = ""

    @cached_property
    def follow_ups(self) -> Mapping[FollowUp, int]:
        """Return how many of the jobs have which follow-up; each has exactly one."""
        counts = Counter(self.not_succeeded)
        unexamined = self.jobs - self.succeeded - sum(self.not_succeeded.values())
        counts[FollowUp.OPEN] += max(0, unexamined)
        counts[FollowUp.SUCCEEDED] = self.succeeded
        return counts

    @property
    def unsolved(self) -> int:
        """Return the number of jobs that did not succeed since."""
        return self.jobs - self.succeeded

    @property
    def open(self) -> int:
        """Return the number of jobs that did not succeed since and that nobody retries."""
        taken_care_of = sum(self.follow_ups[follow_up] for follow_up in TAKEN_CARE_OF)
        return sum(self.follow_ups.values()) - taken_care_of

    @property
    def for_a_person(self) -> int:
        """Return the number of open jobs that a person can do something about.

        A person debugs a code problem, and finds out an unknown cause, also if no retry is
        possible.
        """
        if self.was_cancelled:
            return 0
        if self.verdict in (VerdictKind.CODE, VerdictKind.UNKNOWN):
            return self.open
        return self.open - self.follow_ups[FollowUp.IMPOSSIBLE]

    @property
    def without_remedy(self) -> int:
        """Return the number of open jobs that nobody can do something about."""
        return 0 if self.was_cancelled else self.open - self.for_a_person

    @property
    def division(self) -> str:
        """Return the numbers of jobs by what follows them.

        Empty if all can be retried now, and if users cancelled them.
        """
        if self.was_cancelled:
            return ""
        return describe_follow_ups(self.follow_ups)

    @property
    def was_cancelled(self) -> bool:
        """Return whether users cancelled the jobs of the group."""
        return self.kind == GroupKind.ERROR and self.verdict == VerdictKind.USER

    @cached_property
    def section(self) -> GroupSection:
        """Return the section of the list.

        A group that leaves a person nothing to do needs no action: it is in progress while jobs
        have no later attempt yet, and done once they have, or if users cancelled them.
        """
        section = SECTION_OF[GroupStatus(self.status)]
        if section is not GroupSection.ACTION or self.for_a_person:
            return section
        retried = self.follow_ups[FollowUp.SUCCEEDED] + self.follow_ups[FollowUp.FAILED_AGAIN]
        has_ended = self.was_cancelled or retried == sum(self.follow_ups.values())
        return GroupSection.DONE if has_ended else GroupSection.PROGRESS

    @property
    def step(self) -> str:
        """Return what to do about the group."""
        if not self.for_a_person and not self.was_cancelled:
            return self._reason_for_nothing
        if self.kind == GroupKind.HOST:
            return "drain the host, then retry elsewhere"
        if self.kind == GroupKind.RELEASE:
            return "hold the release, then retry with another"
        if self.wait and self.verdict == VerdictKind.SERVICE:
            return self.wait
        return step_of(VerdictKind(self.verdict), self.advice)

    @property
    def _reason_for_nothing(self) -> str:
        """Return why a person has nothing to do."""
        reasons = {
            FollowUp.IMPOSSIBLE: "cannot be retried",
            FollowUp.BY_RULE: "left to recovery rules, nothing to do",
            FollowUp.IN_BATCH: "being retried, nothing to do",
            FollowUp.RETRYING: "being retried, nothing to do",
            FollowUp.FAILED_AGAIN: "retried since, nothing to do here",
        }
        for follow_up, reason in reasons.items():
            if self.follow_ups[follow_up]:
                return reason
        return "succeeded since, nothing to do"


@dataclass(frozen=True)
class ListSection:
    """A section of the list: its groups on this page, and the totals of all its groups."""

    label: str
    rows: list[GroupRow]
    groups: int
    jobs: int
    core_seconds: int


class GroupSums(NamedTuple):
    """Sums over the jobs of a group; `succeeded` are those that succeeded later."""

    jobs: int = 0
    succeeded: int = 0
    core_seconds: int = 0

    def plus(self, other: "GroupSums") -> "GroupSums":
        return GroupSums(
            self.jobs + other.jobs,
            self.succeeded + other.succeeded,
            self.core_seconds + other.core_seconds,
        )


def sums_by_group(totals: Sequence[QuerySet[Any]]) -> dict[int | None, GroupSums]:
    """Return the sums by primary key of the group; jobs without a group are under None."""
    sums: dict[int | None, GroupSums] = {}
    for part in totals:
        figures = part.order_by().values_list("group")
        figures = figures.annotate(Sum("jobs"), Sum("succeeded"), Sum("core_seconds"))
        for group_pk, *counts in figures:
            sums[group_pk] = sums.get(group_pk, GroupSums()).plus(GroupSums(*counts))
    return sums


def group_rows(
    sums: Mapping[int | None, GroupSums],
    follow_ups: Mapping[int, Mapping[FollowUp, int]],
) -> list[GroupRow]:
    """Return the groups with these sums, sorted by section, then by number of open jobs.

    `follow_ups` counts the jobs that did not succeed since, by primary key of the group.
    """
    groups = rows_where_any(
        FailureGroup, _COLUMNS, "id", [group_pk for group_pk in sums if group_pk]
    )
    rows = []
    for columns in groups:
        values = dict(zip(_COLUMNS, columns, strict=True))
        pk = values.pop("id")
        counted = sums[pk]
        not_succeeded = follow_ups.get(pk, {})
        # Verdicts are counted seconds after they are stored: without this, the parts of a row
        # would be more than its total until then.
        jobs = max(counted.jobs, counted.succeeded + sum(not_succeeded.values()))
        rows.append(
            GroupRow(
                pk=pk,
                jobs=jobs,
                succeeded=counted.succeeded,
                core_seconds=counted.core_seconds,
                not_succeeded=not_succeeded,
                **values,
            )
        )
    return by_section(sorted(rows, key=lambda row: (-row.open, -row.jobs, row.pk)))


def by_section(rows: Iterable[GroupRow]) -> list[GroupRow]:
    """Return the rows section by section; their order within a section stays."""
    return sorted(rows, key=lambda row: _SECTIONS.index(row.section))


def sections_of(rows: list[GroupRow], shown: Iterable[GroupRow]) -> list[ListSection]:
    """Divide the rows of a page into sections, with the totals of all rows."""
    shown = list(shown)
    sections = []
    for section in GroupSection:
        rows_on_page = [row for row in shown if row.section is section]
        if rows_on_page:
            groups = 0
            jobs = 0
            core_seconds = 0
            for row in rows:
                if row.section is section:
                    groups += 1
                    jobs += row.jobs
                    core_seconds += row.core_seconds
            sections.append(ListSection(section.label, rows_on_page, groups, jobs, core_seconds))
    return sections


def add_waits(rows: Iterable[GroupRow], at: datetime) -> None:
    """Set what to wait for on groups (with details) whose service is down."""
    waits = waits_by_service(at)
    for row in rows:
        row.wait = waits.get(row.group.service.lower(), "")


def add_details(
    rows: Iterable[GroupRow],
    totals: Sequence[QuerySet[Any]],
    hours: QuerySet[CauseTotals],
    *,
    end: datetime,
) -> None:
    """Add groups, experiments and times from the totals to the rows of a page.

    `hours` gives the hourly counts of the last day before `end`.
    """
    by_pk = {row.pk: row for row in rows}
    advice = KnownError.objects.filter(pk=OuterRef("cause")).values("advice")
    groups = FailureGroup.objects.defer("profile").annotate(known_advice=Subquery(advice))
    for pk, group in groups.in_bulk(list(by_pk)).items():
        by_pk[pk].group = group
        by_pk[pk].advice = group.known_advice or ""
    start = end - timedelta(hours=SPARK_HOURS)
    for row in by_pk.values():
        row.hourly = [0] * SPARK_HOURS
    of_day = hours.filter(group__in=by_pk, hour__gte=start, hour__lt=end).order_by()
    for pk, hour, jobs in of_day.values_list("group", "hour").annotate(n=Sum("jobs")):
        by_pk[pk].hourly[int((hour - start).total_seconds()) // 3600] = jobs
    counted: Counter[tuple[int, str]] = Counter()
    times: dict[int, list[datetime]] = defaultdict(list)
    for part in totals:
        of_page = part.filter(group__in=by_pk).order_by().values_list("group", "experiment__name")
        figures = of_page.annotate(Sum("jobs"), Min("first_ended_at"), Max("last_ended_at"))
        for pk, experiment, jobs, *ends in figures:
            counted[pk, experiment or "no experiment"] += jobs
            times[pk] += ends
    for (pk, experiment), jobs in counted.most_common():
        by_pk[pk].experiments.append((experiment, jobs))
    for pk, ends in times.items():
        by_pk[pk].first = min(ends)
        by_pk[pk].last = max(ends)


class FacetValue(NamedTuple):
    """A value that the list can be limited to; `value` is that of the parameter in the URL."""

    value: str
    name: str
    total: int


class Facet(NamedTuple):
    """The most frequent values of a property of groups, most frequent first."""

    label: str
    parameter: str
    values: list[FacetValue]


def facets_of(totals: Sequence[QuerySet[Any]], rows: Iterable[GroupRow]) -> list[Facet]:
    """Return facets that count jobs by verdict, experiment, stage and cluster, groups by status.

    Facets without values are left out.
    """
    counts: dict[str, Counter[Any]] = {}
    for name in ("verdict", "experiment", "stage", "cluster"):
        counts[name] = Counter()
    for part in totals:
        for *values, jobs in part.order_by().values_list(*counts).annotate(n=Sum("jobs")):
            for value, counted in zip(values, counts.values(), strict=True):
                counted[value] += jobs

    names: dict[str, dict[Any, tuple[str, str]]] = {"experiment": {}, "cluster": {}}
    for experiment in Experiment.objects.filter(pk__in=counts["experiment"]):
        names["experiment"][experiment.pk] = experiment.key, experiment.name
    for cluster in Cluster.objects.filter(pk__in=counts["cluster"]):
        names["cluster"][cluster.pk] = cluster.name, cluster.name
    facets = []
    for parameter, counted in counts.items():
        names_of_values = names.get(parameter, {})
        named = []
        for value, jobs in counted.items():
            if value:
                parameter_value, name = names_of_values.get(value, (value, value))
                named.append(FacetValue(parameter_value, name, jobs))
        most_first = sorted(named, key=lambda facet_value: (-facet_value.total, facet_value.name))
        facets.append(Facet(parameter.capitalize(), parameter, most_first[:FACET_VALUES]))

    facets.append(Facet("Groups by status", "status", _groups_by_status(rows)))
    return [facet for facet in facets if facet.values]


def _groups_by_status(rows: Iterable[GroupRow]) -> list[FacetValue]:
    groups = Counter(row.status for row in rows)
    values = []
    for status in GroupStatus:
        if groups[status]:
            values.append(FacetValue(status.value, status.label.lower(), groups[status]))
    return values


def in_view(rows: Iterable[GroupRow], view: str, user: User, *, since: datetime) -> list[GroupRow]:
    """Return the groups of a view, except muted ones: all, unexplained, new, to retry, or mine.

    New groups were first seen since `since`. The view `muted` returns the muted groups.
    """
    tests = {
        "new": lambda row: row.first_seen_at >= since,
        "unexplained": lambda row: row.verdict == VerdictKind.UNKNOWN,
        "retry": lambda row: row.verdict == VerdictKind.SERVICE and row.follow_ups[FollowUp.OPEN],
        "mine": lambda row: row.owner == user.username,
    }
    if view == "muted":
        return [row for row in rows if row.status == GroupStatus.MUTED]
    return [row for row in rows if row.status != GroupStatus.MUTED and tests.get(view, bool)(row)]
