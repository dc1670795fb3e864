"""Read jobs, and how far accounting has been collected."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from django.conf import settings
from django.db.models import F, Q, QuerySet
from django.db.models.lookups import Exact

from apps.accounts.models import User
from apps.core.domain.plugins import Registry
from apps.core.models import Heartbeat
from apps.jobs.domain.records.conversion import hour_of
from apps.jobs.enums import Counted
from apps.jobs.models import SHORT_HOST, Collection, DirtyHour, Job

#: Heartbeat that stores the as-of time of the totals.
TOTALS_HEART = "job totals"
#: A cluster whose accounting is collected less far than this is behind. Collection runs every 15 s.
BEHIND = timedelta(minutes=10)
#: Totals that lack the jobs of less than this are shown without a time.
SHORT_LAG = timedelta(minutes=2)

#: Maximum related jobs on a page.
RELATED = 20
#: How many of the newest jobs are sorted by a column without an index: 10,000 take 60 ms.
MOST_SORTED = 10_000
#: Digits that always fit the column of a scheduler's number.
LONGEST_RAW_ID = 18


def jobs_for_list(user: User) -> QuerySet[Job]:
    """Return the jobs that a user can see, for a list."""
    return Job.objects.visible_to(user).select_related("cluster", "experiment", "site")


def other_attempts(job: Job) -> list[Job]:
    """Return the other attempts of a job, for users who can see this one.

    They share the first submission time: job IDs are recycled, submission times are not.
    """
    same = Job.objects.filter(
        cluster=job.cluster_id, job_id=job.job_id, submitted_at=job.submitted_at
    )
    attempts = same.filter(user=job.user, experiment=job.experiment).exclude(pk=job.pk)
    return list(attempts.order_by("attempt")[:RELATED])


def array_siblings(job: Job) -> list[Job]:
    """Return other tasks of the array, failed ones first, for users who can see this one."""
    tasks = Job.objects.filter(
        cluster=job.cluster_id,
        spool_id=job.spool_id,
        submitted_at=job.submitted_at,
        experiment=job.experiment,
    ).exclude(job_id=job.job_id)
    failed = list(tasks.failed().order_by("-ended_at", "-pk")[:RELATED])
    rest = tasks.exclude(pk__in=[task.pk for task in failed]).order_by("-ended_at", "-pk")
    return failed + list(rest[: RELATED - len(failed)])


def list_collections() -> list[Collection]:
    """Return the collection state of each cluster."""
    return list(
        Collection.objects.filter(cluster__collects=True)
        .select_related("cluster")
        .order_by("cluster__name")
    )


def collections_behind(at: datetime) -> QuerySet[Collection]:
    """Return the collection state of the clusters that are behind."""
    late = Collection.objects.filter(cluster__collects=True, collected_until__lt=at - BEHIND)
    return late.select_related("cluster").order_by("cluster__name")


def are_being_counted(at: datetime) -> bool:
    """Return whether totals of the last 24 full hours still miss collected jobs."""
    end = hour_of(at)
    hours = DirtyHour.objects.filter(
        counts=Counted.JOBS, hour__gte=end - timedelta(hours=24), hour__lt=end
    )
    return hours.exists()


def totals_as_of() -> datetime | None:
    """Return the as-of time of the hourly totals."""
    return Heartbeat.objects.filter(name=TOTALS_HEART).values_list("at", flat=True).first()


def counted_until(
    at: datetime, clusters: Iterable[int] | None = None, *, with_behind: bool = True
) -> datetime | None:
    """Return until when totals have the jobs of these clusters, given by primary key, or of all.

    None if they lack none, or only jobs of the last `SHORT_LAG`. Without `with_behind`, clusters
    that are behind do not count: the page names them. Takes two queries.
    """
    oldest = at - SHORT_LAG
    late = Collection.objects.filter(cluster__collects=True, collected_until__lt=oldest)
    if clusters is not None:
        late = late.filter(cluster__in=clusters)
    if not with_behind:
        late = late.filter(collected_until__gte=at - BEHIND)
    moments = list(late.values_list("collected_until", flat=True))
    as_of = totals_as_of()
    if as_of is not None and as_of < oldest:
        moments.append(as_of)
    return min(moments, default=None)


def newest_to_sort(jobs: QuerySet[Job]) -> QuerySet[Job]:
    """Return the `MOST_SORTED` newest of these jobs, to be ordered by a column without an index.

    They are annotated with `used_core_seconds`.
    """
    newest = jobs.order_by("-ended_at", "-pk").values("pk")[:MOST_SORTED]
    return Job.objects.filter(pk__in=newest).annotate(
        used_core_seconds=F("wall_seconds") * F("cpus")
    )


def jobs_in_spool(*, cluster_id: int, spool_ids: list[str]) -> QuerySet[Job]:
    """Return the jobs whose script has one of these spool IDs.

    It does not filter by user: callers have already checked access to the script.
    """
    return Job.objects.filter(cluster_id=cluster_id, spool_id__in=spool_ids)


@dataclass(frozen=True, slots=True)
class Mark:
    """A value in a column that another app adds to the job list: a state and its text.

    `is_verdict` is whether the state is the verdict on a failed job, which pages mark otherwise.
    """

    state: str
    text: str
    is_verdict: bool = False


class JobColumn(Protocol):
    """A plugin that adds a column to the job list.

    It returns marks by primary key of the job, in a constant number of queries.
    """

    def __call__(self, jobs: Sequence[Job]) -> Mapping[int, Mark]: ...


#: Columns that other apps add to the job list, by title.
COLUMNS: Registry[JobColumn] = Registry("opsportal.job_columns", settings.JOB_COLUMNS)


def with_columns(jobs: Sequence[Job]) -> tuple[list[str], list[tuple[Job, list[Mark | None]]]]:
    """Return the titles of the added columns, and each job with its marks."""
    titles = []
    marks_by_job: dict[int, list[Mark | None]] = {job.pk: [] for job in jobs}
    for name, column in sorted(COLUMNS.working().items()):
        titles.append(name.capitalize())
        marks = column(jobs)
        for job in jobs:
            marks_by_job[job.pk].append(marks.get(job.pk))
    return titles, [(job, marks_by_job[job.pk]) for job in jobs]


def short_host(name: str) -> str:
    """Return the name of a host without its domain, as `SHORT_HOST` does in SQL."""
    return name.partition(".")[0]


def matches_host(text: str) -> Q:
    """Return the condition for a host, given with or without its domain."""
    short = Q(Exact(SHORT_HOST, short_host(text)))
    return short & Q(host=text) if "." in text else short


def matches_id(text: str) -> Q:
    """Return the condition for a job ID as users write it; an array ID matches all its tasks.

    The number of a task in the scheduler matches the task.
    """
    return Q(job_id=text) | Q(spool_id=text) | has_raw_id(text)


def has_raw_id(text: str) -> Q:
    """Return the condition for the scheduler's number of a job, such as Slurm's `JobIDRaw`.

    A text that is no such number matches nothing.
    """
    if text.isascii() and text.isdecimal() and len(text) <= LONGEST_RAW_ID:
        return Q(raw_id=int(text))
    return Q(pk__in=[])
