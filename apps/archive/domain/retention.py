"""Retention of archived jobs: rules by age and size, pins that keep a job, and deletion."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.db import connection, transaction
from django.db.models import Count, DateTimeField, Max, Q, QuerySet
from django.db.models.fields.json import KT
from django.db.models.functions import Cast

from apps.accounts.models import Principal, User
from apps.accounts.permissions import scope_of
from apps.archive.models import ArchivedJob, Pin, RetentionRule, WordIndex
from apps.clusters.models import Cluster
from apps.core.domain.events import publish
from apps.core.domain.locks import lock_for_this_transaction
from apps.core.errors import NotAllowed
from apps.core.models import Event

#: Number of jobs deleted in one transaction, during which no job can be stored.
BATCH = 500

_USED = """
    EXISTS (SELECT FROM archive_archivedjob job WHERE job.script_id = content.id AND {which})
    OR EXISTS (
        SELECT FROM archive_archivedjob job WHERE job.environment_id = content.id AND {which})
    OR EXISTS (
        SELECT FROM archive_archivedjob job WHERE job.description_id = content.id AND {which})"""
_OF_CLUSTER = _USED.format(which="job.cluster_id = %(cluster)s")
_OF_ANY = _USED.format(which="true")
_SIZE = (
    "SELECT coalesce(sum(pg_column_size(data)), 0)::bigint FROM archive_blob content WHERE "
    f"{_OF_CLUSTER}"
)
_FREED = f"""
    SELECT coalesce(sum(pg_column_size(data)), 0)::bigint FROM archive_blob content
    WHERE id = ANY(%(contents)s) AND NOT ({_OF_CLUSTER})"""
_DELETE_UNUSED = (
    f"DELETE FROM archive_blob content WHERE id = ANY(%(contents)s) AND NOT ({_OF_ANY})"
)

_DELETE_WORDS = """
    DELETE FROM archive_scriptwords words
    USING unnest(%s::bigint[], %s::date[]) AS gone (script_id, day)
    WHERE words.script_id = gone.script_id AND words.day = gone.day AND NOT EXISTS (
        SELECT FROM archive_archivedjob job WHERE job.script_id = gone.script_id
            AND job.submitted_at >= gone.day::timestamp AT TIME ZONE 'UTC'
            AND job.submitted_at < (gone.day + 1)::timestamp AT TIME ZONE 'UTC')"""


@dataclass(frozen=True, slots=True)
class ExcessStorage:
    """The jobs and bytes of a cluster beyond its rule.

    `for_size` is the approximate number of oldest jobs to delete to meet the size limit.
    """

    cluster: Cluster
    size_bytes: int
    too_old: int
    for_size: int


def may_pin(user: User, job: ArchivedJob) -> bool:
    """Return whether the user may pin the job.

    The OPG may pin any job, others only jobs of their experiments.
    """
    return scope_of(user).sees(job.experiment_id)


@transaction.atomic
def pin_job(*, job: ArchivedJob, by: User, reason: str, at: datetime) -> Pin:
    """Keep a job whatever the rules say; an existing pin stays as it is. Raises `NotAllowed`."""
    if not may_pin(by, job):
        raise NotAllowed("Only the OPG and members of the experiment can pin a job.")
    # Lock the job so that it is not deleted meanwhile.
    ArchivedJob.objects.select_for_update(of=("self",)).get(pk=job.pk)
    pin, created = Pin.objects.get_or_create(
        job=job, defaults={"by": str(by)[:150], "reason": reason[:200], "at": at}
    )
    if created:
        publish(kind="archive.pinned", target=job, by=by, at=at, reason=reason)
    return pin


@transaction.atomic
def unpin_job(*, job: ArchivedJob, by: User, at: datetime) -> bool:
    """Remove the pin of a job; return whether it was pinned. Raises `NotAllowed`."""
    if not may_pin(by, job):
        raise NotAllowed("Only the OPG and members of the experiment can unpin a job.")
    pin = Pin.objects.select_for_update().filter(job=job).first()
    if pin is None:
        return False
    publish(kind="archive.unpinned", target=job, by=by, at=at, reason=pin.reason)
    pin.delete()
    return True


@transaction.atomic
def save_retention_rule(*, rule: RetentionRule, by: Principal, at: datetime) -> None:
    """Save a new or changed rule."""
    before = RetentionRule.objects.filter(pk=rule.pk).first()
    rule.save()
    publish(
        kind="archive.retention_changed",
        target=rule,
        by=by,
        at=at,
        old=_limits(before) if before else "",
        new=_limits(rule),
    )


@transaction.atomic
def delete_retention_rule(*, rule: RetentionRule, by: Principal, at: datetime) -> None:
    """Delete a rule; jobs that it limited are kept from now on."""
    publish(kind="archive.retention_changed", target=rule, by=by, at=at, old=_limits(rule), new="")
    rule.delete()


def content_size(*, cluster: Cluster) -> int:
    """Return the compressed size in PostgreSQL of the contents of a cluster's jobs, each once.

    A content shared by two clusters counts for both. Rows of jobs and indexes are not counted.
    """
    with connection.cursor() as cursor:
        cursor.execute(_SIZE, {"cluster": cluster.pk})
        return int(cursor.fetchone()[0])


def find_excess_storage(*, at: datetime) -> Iterator[ExcessStorage]:
    """Yield for each cluster with a rule what `delete_expired` would delete. Changes nothing."""
    for cluster, rule in _rules():
        jobs = ArchivedJob.objects.filter(cluster=cluster)
        numbers = jobs.aggregate(
            all=Count("pk"), old=Count("pk", filter=_too_old(rule, at) & Q(pin=None))
        )
        size_bytes = content_size(cluster=cluster)
        for_size = 0
        if rule.max_bytes is not None and size_bytes > rule.max_bytes:
            surplus_share = 1 - rule.max_bytes / size_bytes
            for_size = round(surplus_share * numbers["all"])
        yield ExcessStorage(cluster, size_bytes, numbers["old"], for_size)


def delete_expired(*, by: Principal, at: datetime, batches: int) -> int:
    """Delete the jobs that no rule keeps, oldest first, in at most `batches` batches.

    Return the number of jobs. Contents that no job has any more are deleted too. Each batch is a
    transaction with one event, `archive.expired`. Pinned jobs stay.
    """
    deleted = 0
    for cluster, rule in _rules():
        pinless = ArchivedJob.objects.filter(cluster=cluster, pin=None).order_by(
            "submitted_at", "pk"
        )
        old = pinless.filter(_too_old(rule, at))
        why = f"submitted more than {rule.max_age_days} days ago"
        while batches and (expired := delete_batch(cluster, old, reason=why, by=by, at=at)):
            deleted += expired[0]
            batches -= 1
        if rule.max_bytes is None or not batches:
            continue
        size = content_size(cluster=cluster)
        why = f"contents of more than {rule.max_bytes} bytes"
        while batches and size > rule.max_bytes:
            expired = delete_batch(cluster, pinless, reason=why, by=by, at=at)
            if expired is None:
                break
            deleted += expired[0]
            batches -= 1
            size -= expired[1]
    return deleted


def kept_since(*, cluster: Cluster, at: datetime) -> datetime | None:
    """Return the time of submission before which a cluster's rule keeps no jobs.

    It follows from the rule's age limit and from what was deleted for size. None without a rule.
    """
    rule = dict(_rules()).get(cluster)
    if rule is None:
        return None
    moments = []
    if rule.max_age_days is not None:
        moments.append(at - timedelta(days=rule.max_age_days))
    if rule.max_bytes is not None:
        events = Event.objects.filter(kind="archive.expired", target_id=str(cluster.pk))
        last_submission = Max(Cast(KT("data__submitted__1"), DateTimeField()))
        deleted_until = events.aggregate(last=last_submission)["last"]
        if deleted_until:
            moments.append(deleted_until)
    return max(moments, default=None)


@transaction.atomic
def delete_batch(
    cluster: Cluster, jobs: QuerySet[ArchivedJob], *, reason: str, by: Principal, at: datetime
) -> tuple[int, int] | None:
    """Delete the first of `jobs`; return their number, and the bytes freed from the cluster.

    Return None if there are no jobs to delete.
    """
    # No words may be added for deleted contents.
    list(WordIndex.objects.select_for_update())
    # A content that no job has now must not be used by a job that is being stored.
    lock_for_this_transaction("archive.store")
    expired = _lock_without_pin(list(jobs.values_list("pk", flat=True)[:BATCH]))
    if not expired:
        return None

    contents: set[int] = set()
    script_days = set()
    for job in expired:
        contents |= {job.script_id, job.environment_id}
        if job.description_id is not None:
            contents.add(job.description_id)
        script_days.add((job.script_id, job.submitted_at.astimezone(UTC).date()))
    ArchivedJob.objects.filter(pk__in=[job.pk for job in expired]).delete()
    with connection.cursor() as cursor:
        cursor.execute(_DELETE_WORDS, [list(column) for column in zip(*script_days, strict=True)])
        cursor.execute(_FREED, {"contents": sorted(contents), "cluster": cluster.pk})
        freed_bytes = int(cursor.fetchone()[0])
        cursor.execute(_DELETE_UNUSED, {"contents": sorted(contents)})
        deleted_contents = cursor.rowcount

    submissions = [job.submitted_at for job in expired]
    data = {
        "jobs": len(expired),
        "contents": deleted_contents,
        "freed_bytes": freed_bytes,
        "ids": [expired[0].pk, expired[-1].pk],
        "submitted": [min(submissions).isoformat(), max(submissions).isoformat()],
    }
    publish(kind="archive.expired", target=cluster, by=by, at=at, reason=reason, data=data)
    return len(expired), freed_bytes


def _lock_without_pin(pks: Sequence[int]) -> list[ArchivedJob]:
    """Lock these jobs; return those without a pin, by primary key, with few of their fields."""
    archived_jobs = (
        ArchivedJob.objects.select_for_update(of=("self",)).filter(pk__in=pks).order_by("pk")
    )
    locked = list(archived_jobs.only("submitted_at", "script", "environment", "description"))
    # Read after the lock: a job may have been pinned before it was taken.
    pinned = set(Pin.objects.filter(job__in=pks).values_list("job_id", flat=True))
    return [job for job in locked if job.pk not in pinned]


def _rules() -> list[tuple[Cluster, RetentionRule]]:
    """Return the clusters that have a rule, each with its own rule or else the general one."""
    rules = {rule.cluster_id: rule for rule in RetentionRule.objects.all()}
    pairs = []
    for cluster in Cluster.objects.all():
        rule = rules.get(cluster.pk) or rules.get(None)
        if rule:
            pairs.append((cluster, rule))
    return pairs


def _too_old(rule: RetentionRule, at: datetime) -> Q:
    if rule.max_age_days is None:
        return Q(pk__in=[])
    return Q(submitted_at__lt=at - timedelta(days=rule.max_age_days))


def _limits(rule: RetentionRule) -> str:
    age = "any age"
    if rule.max_age_days is not None:
        age = f"{rule.max_age_days} days"
    if rule.max_bytes is not None:
        return f"{age}, {rule.max_bytes} bytes"
    return f"{age}, any size"
