"""Read failure groups with the counts of the jobs that a user may see, from hourly totals."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.db.models import Max, Min, Q, QuerySet, Sum

from apps.accounts.models import User
from apps.diagnosis.enums import SECTION_OF, GroupKind, GroupSection, GroupStatus, VerdictKind
from apps.diagnosis.models import CauseTotals, FailureGroup
from apps.diagnosis.wording import NEXT_STEPS

SPARK_HOURS = 24
FACET_VALUES = 8
_SECTIONS = list(GroupSection)


@dataclass
class GroupRow:
    """A group with its figures: jobs, those that succeeded since, core seconds, first and last failure counted."""

    group: FailureGroup
    jobs: int
    succeeded: int
    core_seconds: int
    first: datetime
    last: datetime
    experiments: list[tuple[str, int]] = field(default_factory=list)
    hourly: list[int] = field(default_factory=list)
    spark: str = ""

    @property
    def open(self) -> int:
        """Return how many jobs did not succeed at a later attempt."""
        return self.jobs - self.succeeded

    @property
    def section(self) -> GroupSection:
        """Return the section of the list; a group whose jobs all succeeded since is done."""
        section = SECTION_OF[GroupStatus(self.group.status)]
        is_over = not self.open and section is GroupSection.ACTION
        return GroupSection.DONE if is_over else section

    @property
    def step(self) -> str:
        """Return what to do about the group."""
        if not self.open:
            return "succeeded since, nothing to do"
        if self.group.kind == GroupKind.HOST:
            return "drain the host, then retry elsewhere"
        if self.group.kind == GroupKind.RELEASE:
            return "hold the release, then retry with another"
        return NEXT_STEPS[VerdictKind(self.group.verdict)]


@dataclass(frozen=True)
class Section:
    """A section of the list: the groups of this page, and the totals of all its groups."""

    label: str
    rows: list[GroupRow]
    groups: int
    jobs: int
    core_seconds: int


def group_rows(totals: QuerySet[CauseTotals]) -> list[GroupRow]:
    """Return the groups of these totals: by section, then by jobs that are still open."""
    sums = {
        group: figures
        for group, *figures in totals.exclude(group=None)
        .order_by()
        .values_list("group")
        .annotate(
            n=Sum("jobs"),
            later=Sum("succeeded"),
            cores=Sum("core_seconds"),
            first=Min("first_ended_at"),
            last=Max("last_ended_at"),
        )
    }
    groups = FailureGroup.objects.defer("profile").in_bulk(list(sums))
    rows = [GroupRow(groups[pk], *figures) for pk, figures in sums.items() if pk in groups]
    return sorted(rows, key=lambda row: (_SECTIONS.index(row.section), -row.open, -row.jobs, row.group.pk))


def sections_of(rows: list[GroupRow], shown: Iterable[GroupRow]) -> list[Section]:
    """Divide the rows of a page into sections, with the totals of all rows."""
    shown, found = list(shown), []
    for section in GroupSection:
        mine, here = ([row for row in some if row.section is section] for some in (rows, shown))
        if here:
            sums = sum(row.jobs for row in mine), sum(row.core_seconds for row in mine)
            found.append(Section(section.label, here, len(mine), *sums))
    return found


def add_details(rows: Iterable[GroupRow], totals: QuerySet[CauseTotals], *, end: datetime) -> None:
    """Add experiments and the hourly counts of the last day to the rows of a page, in two queries."""
    by_pk = {row.group.pk: row for row in rows}
    start = end - timedelta(hours=SPARK_HOURS)
    of_page = totals.filter(group__in=by_pk).order_by()
    for row in by_pk.values():
        row.hourly = [0] * SPARK_HOURS
    for group, hour, jobs in of_page.filter(hour__gte=start).values_list("group", "hour").annotate(n=Sum("jobs")):
        by_pk[group].hourly[int((hour - start).total_seconds()) // 3600] = jobs
    counted = of_page.values_list("group", "experiment__key").annotate(n=Sum("jobs")).order_by("-n")
    for group, experiment, jobs in counted:
        by_pk[group].experiments.append((experiment or "no experiment", jobs))


def facets_of(totals: QuerySet[CauseTotals], rows: Iterable[GroupRow]) -> list[tuple[str, str, list[tuple[str, int]]]]:
    """Return (label, parameter, [(value, count)]): jobs by verdict, experiment, stage, site; groups by status."""
    found = []
    names = (
        ("Verdict", "verdict", "verdict"),
        ("Experiment", "experiment", "experiment__key"),
        ("Stage", "stage", "stage"),
        ("Cluster", "cluster", "cluster__name"),
    )
    for label, parameter, name in names:
        known = totals.exclude(Q(**{name: ""}) | Q(**{f"{name}__isnull": True})).order_by()
        counts = known.values_list(name).annotate(n=Sum("jobs")).order_by("-n", name)[:FACET_VALUES]
        found.append((label, parameter, [(value, jobs) for value, jobs in counts]))
    statuses: dict[str, int] = dict.fromkeys(GroupStatus.values, 0)
    for row in rows:
        statuses[row.group.status] += 1
    return [*found, ("Groups by status", "status", [(value, n) for value, n in statuses.items() if n])]


def in_view(rows: Iterable[GroupRow], view: str, user: User, *, since: datetime) -> list[GroupRow]:
    """Return the groups of a view: all that are not muted, or unexplained, new since a time, to retry, or mine."""
    tests = {
        "new": lambda row: row.group.first_seen_at >= since,
        "unexplained": lambda row: row.group.verdict == VerdictKind.UNKNOWN,
        "retry": lambda row: row.group.verdict == VerdictKind.SERVICE and row.open,
        "mine": lambda row: row.group.owner == user.username,
    }
    if view == "muted":
        return [row for row in rows if row.group.status == GroupStatus.MUTED]
    return [row for row in rows if row.group.status != GroupStatus.MUTED and tests.get(view, bool)(row)]
