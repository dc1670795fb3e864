"""Which jobs wrote a line: how many failed and completed ones, since when, and what they share.

Counts come from the totals by hour. Hosts, sites and releases are compared for the newest failed
jobs with the line, and for as many failed jobs of the same stages and hours.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import ceil

from django.db import connection
from django.db.models import F, Min, Q, QuerySet, Sum
from django.db.models.expressions import Combinable
from django.db.models.functions import TruncDay

from apps.accounts.models import User
from apps.jobs.domain.statistics.intervals import compare_rates, wilson_interval
from apps.jobs.models import SHORT_HOST, Job
from apps.search.models import LineTemplate, ReadLogs, TemplateTotals, signed

#: How many of the newest failed jobs are compared, and in how many hours at most.
COMPARED = 2_000
COMPARED_HOURS = 400
#: Failed jobs to read for each one to compare, to find enough of the same stages.
MOST_READ = 8
#: Minimum number of jobs with a value to compare it, and maximum number of values per attribute.
LEAST_JOBS = 3
MOST_VALUES = 3
#: Maximum number of values that stand out to show; the others are folded.
MOST_FINDINGS = 4
#: A value stands out if the interval of its lift lies above this.
STANDS_OUT = 1.5
#: Attributes, by the name on the page, and the expression that reads them of a job.
ATTRIBUTES: dict[str, Combinable] = {
    "site": F("site__name"),
    "host": SHORT_HOST,
    "release": F("release"),
    "experiment": F("experiment__key"),
    "CPU model": F("cpu_model"),
}
_NEWEST = """
SELECT ended_at, job_id FROM (
    SELECT job_id, ended_at FROM search_jobtemplates read
    WHERE templates && %(templates)s::int[] AND ended_at >= %(since)s AND ended_at < %(until)s
      AND (%(before)s::timestamptz IS NULL OR (ended_at, job_id) < (%(before)s, %(before_job)s))
      AND (%(failed)s::boolean IS NULL OR failed = %(failed)s)
      AND (%(stages)s::text[] IS NULL OR EXISTS (
          SELECT 1 FROM jobs_job job
          WHERE job.id = read.job_id AND job.stage = ANY (%(stages)s::text[])))
    OFFSET 0  -- the planner would walk back through all jobs, to find as many as the limit
) hits
ORDER BY ended_at DESC, job_id DESC LIMIT %(limit)s
"""
_LIKE_THESE = """
SELECT job_id FROM unnest(%(hours)s::timestamptz[], %(numbers)s::int[]) AS wanted (hour, jobs),
LATERAL (
    SELECT failed.job_id FROM (
        SELECT job_id FROM search_jobtemplates
        WHERE ended_at >= wanted.hour AND ended_at < wanted.hour + interval '1 hour' AND failed
        LIMIT %(most_read)s * wanted.jobs
    ) failed JOIN jobs_job job ON job.id = failed.job_id
    WHERE (coalesce(job.experiment_id, 0), job.stage) IN (
        SELECT * FROM unnest(%(experiments)s::bigint[], %(stages)s::text[]))
    LIMIT wanted.jobs
) alike
"""


@dataclass(frozen=True, slots=True)
class Hour:
    """How many failed and completed jobs that ended in an hour, or a day, have the line."""

    start: datetime
    failed: int
    completed: int


@dataclass(frozen=True, slots=True)
class Occurrences:
    """How often jobs have a line; `*_of` is the number of jobs of the same stages and days.

    Only jobs whose logs were read are counted. `hours` holds the hours with such jobs, in order.
    `places` are the experiments and stages of these jobs, `requested_stages` the stages that were
    requested, if any. `first_seen` is the first hour of all, before the period too.
    """

    templates: tuple[LineTemplate, ...]
    hours: tuple[Hour, ...]
    places: tuple[tuple[int | None, str], ...]
    failed_of: int
    completed_of: int
    first_seen: datetime | None
    requested_stages: tuple[str, ...] = ()

    @property
    def stages(self) -> list[str]:
        """The names of the stages, in order."""
        return sorted({stage for _, stage in self.places})

    @property
    def failed(self) -> int:
        return sum(hour.failed for hour in self.hours)

    @property
    def completed(self) -> int:
        return sum(hour.completed for hour in self.hours)

    @property
    def last_seen(self) -> datetime | None:
        """The last hour in which a job with the line ended."""
        return self.hours[-1].start if self.hours else None

    @property
    def completed_interval(self) -> tuple[float, float]:
        """The 95 % interval of the share of completed jobs that have the line."""
        return wilson_interval(self.completed, self.completed_of)

    @property
    def failed_interval(self) -> tuple[float, float]:
        return wilson_interval(self.failed, self.failed_of)

    @property
    def comes_with_failure(self) -> bool:
        """Whether failed jobs have the line more often than completed ones: intervals are apart."""
        return self.failed_interval[0] > self.completed_interval[1]

    @property
    def days(self) -> list[Hour]:
        """The numbers by UTC day."""
        failed: Counter[datetime] = Counter()
        completed: Counter[datetime] = Counter()
        for hour in self.hours:
            day = hour.start.astimezone(UTC).replace(hour=0)
            failed[day] += hour.failed
            completed[day] += hour.completed
        return [Hour(day, failed[day], completed[day]) for day in sorted(failed)]


@dataclass(frozen=True, slots=True)
class LineTrait:
    """A value that jobs with the line have: how many of them, its expected share, and the lift.

    `low` and `high` are the bounds of the 95 % interval of the lift.
    """

    attribute: str
    value: str
    jobs: int
    share: float
    expected: float
    lift: float
    low: float
    high: float

    @property
    def stands_out(self) -> bool:
        return self.low > STANDS_OUT

    @property
    def expected_jobs(self) -> float:
        """How many jobs with the line would have it if they were like the others."""
        return self.expected * self.jobs / self.share

    @property
    def excess(self) -> float:
        """How many more jobs with the line have it than expected."""
        return self.jobs - self.expected_jobs


@dataclass(frozen=True, slots=True)
class TraitComparison:
    """What the newest failed jobs with a line have in common; `alike` jobs are compared with.

    The traits of most jobs beyond the expected come first.
    """

    jobs: int
    alike: int
    traits: tuple[LineTrait, ...]

    @property
    def strongest(self) -> LineTrait | None:
        """The trait of most jobs beyond the expected among those that stand out, if any does."""
        return next(iter(self.findings), None)

    @property
    def findings(self) -> list[LineTrait]:
        """The first traits that stand out."""
        return [trait for trait in self.traits if trait.stands_out][:MOST_FINDINGS]

    @property
    def other_traits(self) -> list[LineTrait]:
        """The traits that `findings` leaves out."""
        shown = self.findings
        return [trait for trait in self.traits if trait not in shown]


def count_occurrences(
    line_hash: int, *, user: User, since: datetime, stages: Collection[str] = ()
) -> Occurrences:
    """Count the jobs that a user may see and that have the template with this hash."""
    templates = tuple(LineTemplate.objects.visible_to(user).filter(hash=signed(line_hash)))
    totals = TemplateTotals.objects.filter(template__in=templates, hour__gte=since)
    if stages:
        totals = totals.filter(stage__in=stages)
    sums = totals.values_list("hour").annotate(Sum("failed"), Sum("good"))
    hours = [Hour(*row) for row in sums.order_by("hour")]
    experiments = {template.pk: template.experiment_id for template in templates}
    places = set()
    for template, stage in totals.order_by().values_list("template", "stage").distinct():
        places.add((experiments[template], stage))
    failed_of, completed_of = _count_read_logs(places, hours, since)
    all_totals = TemplateTotals.objects.filter(template__in=templates)
    return Occurrences(
        templates=templates,
        hours=tuple(hours),
        places=tuple(places),
        failed_of=failed_of,
        completed_of=completed_of,
        first_seen=all_totals.aggregate(first=Min("hour"))["first"],
        requested_stages=tuple(stages),
    )


def _count_read_logs(
    places: Collection[tuple[int | None, str]], hours: Sequence[Hour], since: datetime
) -> tuple[int, int]:
    """Return how many failed and completed jobs of these stages ended on the days of these hours.

    Only jobs whose logs were read count.
    """
    if not hours:
        return 0, 0
    same_places = Q()
    for experiment, stage in places:
        same_places |= Q(experiment=experiment, stage=stage)
    days = {hour.start.astimezone(UTC).replace(hour=0) for hour in hours}
    read_logs = ReadLogs.objects.filter(
        same_places, hour__gte=max(min(days), since), hour__lt=max(days) + timedelta(days=1)
    )
    sums = (
        read_logs.annotate(day=TruncDay("hour", tzinfo=UTC))
        .filter(day__in=days)
        .aggregate(failed=Sum("failed", default=0), good=Sum("good", default=0))
    )
    return sums["failed"], sums["good"]


def newest_jobs(
    occurrences: Occurrences,
    *,
    limit: int,
    failed: bool | None = None,
    before: tuple[datetime, int] | None = None,
) -> list[tuple[datetime, int]]:
    """Return end and primary key of the newest jobs with the line, newest first.

    Jobs of hours that were not counted yet are left out, so that counts and jobs agree. `before`
    is the end and the key of the job that the last page ended with.
    """
    if not occurrences.hours:
        return []
    ended_before = before[0] if before else None
    since = _start_of_newest(occurrences.hours, limit, failed, ended_before)
    with connection.cursor() as cursor:
        cursor.execute(
            _NEWEST,
            {
                "templates": [template.pk for template in occurrences.templates],
                "since": since,
                "until": occurrences.hours[-1].start + timedelta(hours=1),
                "before": ended_before,
                "before_job": before[1] if before else None,
                "failed": failed,
                "stages": [*occurrences.requested_stages] or None,
                "limit": limit,
            },
        )
        return [(ended_at, job) for ended_at, job in cursor.fetchall()]


def _start_of_newest(
    hours: Sequence[Hour], limit: int, failed: bool | None, before: datetime | None
) -> datetime:
    """Return a time since which more than `limit` jobs ended before `before`, by the counts.

    That is the start of the first of all hours if they have fewer.
    """
    start = hours[0].start
    jobs = 0
    for hour in reversed(hours):
        if before and hour.start >= before:
            continue
        if failed is None:
            jobs += hour.failed + hour.completed
        elif failed:
            jobs += hour.failed
        else:
            jobs += hour.completed
        start = hour.start
        # The previous page may have shown jobs of the hour in which it ended.
        is_unseen = before is None or hour.start + timedelta(hours=1) <= before
        if jobs > limit and is_unseen:
            break
    return start


def compare(occurrences: Occurrences, *, user: User) -> TraitComparison:
    """Compare the newest failed jobs with a line with as many failed jobs of the same hours.

    Only jobs that the user may see count.
    """
    newest = newest_jobs(occurrences, limit=COMPARED, failed=True)
    visible = Job.objects.visible_to(user)
    inside = _count_values(visible.filter(pk__in=[job for _, job in newest]))
    jobs = sum(inside["site"].values())
    if not jobs:
        return TraitComparison(0, 0, ())
    everything = _count_values(visible.filter(pk__in=_jobs_like(occurrences)))
    alike = sum(everything["site"].values())
    if not alike:
        return TraitComparison(jobs, 0, ())
    traits = []
    for attribute, values in inside.items():
        for value, having in values.most_common(MOST_VALUES):
            is_common_to_all = everything[attribute][value] == alike
            if value and having >= LEAST_JOBS and not is_common_to_all:
                # A value that the jobs alike do not have is at least one of one more.
                outside = max(everything[attribute][value], 1)
                ratio, low, high = compare_rates(having, jobs, outside, alike)
                trait = LineTrait(
                    attribute=attribute,
                    value=value,
                    jobs=having,
                    share=having / jobs,
                    expected=outside / alike,
                    lift=ratio,
                    low=low,
                    high=high,
                )
                traits.append(trait)
    traits.sort(key=lambda trait: (-trait.excess, trait.attribute, trait.value))
    return TraitComparison(jobs, alike, tuple(traits))


def _jobs_like(occurrences: Occurrences) -> list[int]:
    """Return failed jobs of the same stages, spread over hours as those with the line are."""
    numbers: dict[datetime, int] = {}
    for hour in reversed(occurrences.hours):
        if hour.failed:
            numbers[hour.start] = hour.failed
        if sum(numbers.values()) >= COMPARED or len(numbers) >= COMPARED_HOURS:
            break
    total = sum(numbers.values())
    with connection.cursor() as cursor:
        cursor.execute(
            _LIKE_THESE,
            {
                "hours": [*numbers],
                "numbers": [ceil(COMPARED * jobs / total) for jobs in numbers.values()],
                "experiments": [experiment or 0 for experiment, _ in occurrences.places],
                "stages": [stage for _, stage in occurrences.places],
                "most_read": MOST_READ,
            },
        )
        return [job for (job,) in cursor.fetchall()]


def _count_values(jobs: QuerySet[Job]) -> Mapping[str, Counter[str]]:
    """Return how many of these jobs have each value, by attribute."""
    counts: dict[str, Counter[str]] = {name: Counter() for name in ATTRIBUTES}
    for row in jobs.order_by().values_list(*ATTRIBUTES.values()):
        for name, value in zip(ATTRIBUTES, row, strict=True):
            counts[name][value or ""] += 1
    return counts
