"""Reading jobs, and how far they are collected."""

from datetime import datetime

from django.db.models import Q, QuerySet

from apps.accounts.models import User
from apps.core.models import Heartbeat
from apps.jobs.models import Collection, Job

#: Heartbeat with the as-of time of the totals.
TOTALS_HEART = "job totals"

#: Related jobs on a page.
RELATED = 20


def jobs_for_list(user: User) -> QuerySet[Job]:
    """Return the jobs that a user can see, for a list."""
    return Job.objects.visible_to(user).select_related("cluster", "experiment", "site")


def other_attempts(job: Job) -> list[Job]:
    """Return the other attempts of a job, for users who can see this one. IDs are recycled, first submissions not."""
    same = Job.objects.filter(cluster=job.cluster_id, job_id=job.job_id, submitted_at=job.submitted_at)
    attempts = same.filter(user=job.user, experiment=job.experiment).exclude(pk=job.pk)
    return list(attempts.order_by("attempt")[:RELATED])


def array_siblings(job: Job) -> list[Job]:
    """Return other tasks of the array, failed ones first, for users who can see this one."""
    tasks = Job.objects.filter(
        cluster=job.cluster_id, spool_id=job.spool_id, submitted_at=job.submitted_at, experiment=job.experiment
    ).exclude(job_id=job.job_id)
    failed = list(tasks.failed().order_by("-ended_at", "-pk")[:RELATED])
    rest = tasks.exclude(pk__in=[task.pk for task in failed]).order_by("-ended_at", "-pk")
    return failed + list(rest[: RELATED - len(failed)])


def collections() -> list[Collection]:
    """Return the collection state of each cluster."""
    return list(Collection.objects.filter(cluster__collects=True).select_related("cluster").order_by("cluster__name"))


def totals_as_of() -> datetime | None:
    """Return the as-of time of the hourly totals."""
    return Heartbeat.objects.filter(name=TOTALS_HEART).values_list("at", flat=True).first()


def jobs_in_spool(*, cluster_id: int, spool_ids: list[str]) -> QuerySet[Job]:
    """Return the jobs whose script has one of these IDs in the spool, for callers that know the script."""
    return Job.objects.filter(cluster_id=cluster_id, spool_id__in=spool_ids)


def matches_id(text: str) -> Q:
    """Return the condition for a job ID as users write it; that of an array finds all its tasks."""
    return Q(job_id=text) | Q(spool_id=text)
