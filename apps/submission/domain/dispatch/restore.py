"""After a restore of the database, nothing is submitted twice.

A restored database does not know what was submitted since its copy was made: the portal would
submit the same jobs again. So all production is put on hold at once. What the copy has as planned
is looked up in the scheduler before it is submitted. Stages with jobs that the portal does not know
are put on hold, each by itself, for a person to decide.
"""

import re
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from django.db import connection, transaction
from django.db.models import Min

from apps.clusters.domain import adapter_of
from apps.clusters.models import Cluster
from apps.clusters.schedulers.base import KnowsSubmissions
from apps.core.domain.locks import lock_for_this_transaction
from apps.jobs.domain.collection.proof import SKEW
from apps.jobs.models import Job
from apps.production.domain.approvals.inbox import responsible_users
from apps.production.domain.holds import hold_all_production, hold_stage
from apps.production.enums import RequestState
from apps.production.models import Hold, Request
from apps.submission.enums import RetryState, SubmissionState
from apps.submission.models import KnownDatabase, RetryJob, Submission, UnknownArray

#: How long after a restore the portal searches for jobs that it does not know.
LOOKED_FOR = timedelta(days=7)
SEEN_EVERY = timedelta(minutes=1)
#: A portal that was not at work for longer did not just go through a failover.
LONGEST_FAILOVER = timedelta(minutes=5)
#: Arrays that the reason of a hold names.
NAMED = 5
#: `Submission.name`: request, number of the stage, token.
_NAME = re.compile(r"([A-Za-z0-9][A-Za-z0-9_-]*)\.([0-9]{1,4})\.([0-9a-f]{32})")
_LOCK = "submission.restore"
#: PostgreSQL's settings that end a recovery. They stay set after it.
_TARGETS = (
    "recovery_target",
    "recovery_target_lsn",
    "recovery_target_name",
    "recovery_target_time",
    "recovery_target_xid",
)


class _NamedArray(NamedTuple):
    spool_id: str
    name: str
    submitted_at: datetime


def database_identity() -> str:
    """Return what identifies the database: PostgreSQL's system identifier, and the OID."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT system_identifier, pg_database.oid FROM pg_control_system(), pg_database"
            " WHERE datname = current_database()"
        )
        system, database = cursor.fetchone()
    return f"{system}/{database}"


def database_timeline() -> int:
    """Return PostgreSQL's timeline, which a restore to a moment changes, and a failover too."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT left(pg_walfile_name(pg_current_wal_lsn()), 8)")
        return int(cursor.fetchone()[0], base=16)


def has_recovery_target() -> bool:
    """Return whether the server was configured to recover up to a moment, not to the end."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT bool_or(current_setting(name) != '') FROM unnest(%s::text[]) AS name",
            [list(_TARGETS)],
        )
        return bool(cursor.fetchone()[0])


def stop_after_restore(*, at: datetime) -> bool:
    """Put all production on hold if the database was restored; return whether it was.

    Else note that the database is in use.
    """
    identity = database_identity()
    if _is_in_use(identity, at):
        return False
    with transaction.atomic():
        lock_for_this_transaction(_LOCK)
        if _is_in_use(identity, at):  # noticed by another worker, meanwhile
            return False
        if not KnownDatabase.objects.exists():
            KnownDatabase.objects.create(
                identity=identity, timeline=database_timeline(), noticed_at=at, seen_at=at
            )
            return False
        note_restore(at=at)
    return True


def _is_in_use(identity: str, at: datetime) -> bool:
    newest = _newest()
    if newest is None or newest.identity != identity:
        return False
    timeline = database_timeline()
    if timeline != newest.timeline and _went_back(newest, at):
        return False
    if timeline != newest.timeline or newest.seen_at < at - SEEN_EVERY:
        KnownDatabase.objects.filter(pk=newest.pk).update(seen_at=at, timeline=timeline)
    return True


def _went_back(newest: KnownDatabase, at: datetime) -> bool:
    """Return whether a new timeline comes from a restore, and not from a promoted standby.

    A standby has all that was committed, and is promoted within seconds. A restore to the end of
    the archived WAL has no target, but takes longer, and lacks the last commits.
    """
    if newest.timeline is None:  # stored by a version that did not know timelines
        return False
    return has_recovery_target() or newest.seen_at < at - LONGEST_FAILOVER


def _newest() -> KnownDatabase | None:
    return KnownDatabase.objects.order_by("-pk").first()


@transaction.atomic
def note_restore(*, at: datetime) -> KnownDatabase:
    """Put all production on hold, and doubt whether what is planned was submitted already."""
    newest = _newest()
    state_at = newest.seen_at if newest else at
    restored = KnownDatabase.objects.create(
        identity=database_identity(),
        timeline=database_timeline(),
        noticed_at=at,
        seen_at=at,
        state_at=state_at,
    )
    hold_all_production(
        at=at,
        reason=(
            f"The database is a copy of {state_at:%Y-%m-%d %H:%M} UTC. Jobs submitted after that"
            " are not known here. Wait until the jobs of every cluster are collected again: stages"
            " with such jobs are put on hold by themselves. Then lift this hold."
        ),
    )
    planned = Submission.objects.filter(state=SubmissionState.PLANNED)
    planned.update(state=SubmissionState.UNKNOWN, sending_at=state_at, due_at=at)
    # A retry that was tried before is looked up in the scheduler first.
    released = RetryJob.objects.filter(as_owner=True, state=RetryState.RELEASED, spool_id="")
    released.filter(tries=0).update(tries=1, sending_at=state_at)
    return restored


def newest_restore(*, at: datetime) -> KnownDatabase | None:
    """Return the last restore, unless it is so long ago that the search has ended."""
    restores = KnownDatabase.objects.filter(state_at__isnull=False, noticed_at__gte=at - LOOKED_FOR)
    return restores.order_by("-pk").first()


def is_on_hold_after_restore(*, at: datetime) -> bool:
    """Return whether the hold of the last restore was not lifted yet."""
    holds = Hold.objects.filter(experiment=None, stage=None, by=None, lifted_at=None)
    return newest_restore(at=at) is not None and holds.exists()


def note_unknown_arrays(*, cluster: Cluster, at: datetime) -> list[UnknownArray]:
    """Store jobs of requests that were submitted after the copy was made and are not known.

    Their stages are put on hold. Return the arrays that are new. Raises `SchedulerError`.
    """
    restored = newest_restore(at=at)
    if restored is None or restored.state_at is None:
        return []
    since = restored.state_at - SKEW
    arrays = {array.spool_id: array for array in _arrays_of(cluster, since)}
    known = UnknownArray.objects.filter(cluster=cluster, submitted_at__gte=since)
    for spool_id in known.values_list("spool_id", flat=True):
        arrays.pop(spool_id, None)
    unknown = list(_unknown(arrays.values(), cluster, at))
    for request in Request.objects.filter(pk__in={array.request_id for array in unknown}):
        _store(request, [array for array in unknown if array.request_id == request.pk], at)
    return unknown


def _arrays_of(cluster: Cluster, since: datetime) -> Iterator[_NamedArray]:
    """Yield the jobs since a time, of any name: unfinished ones, then jobs of accounting."""
    adapter = adapter_of(cluster)
    if isinstance(adapter, KnowsSubmissions):
        for job in adapter.submissions():
            if job.submitted_at >= since:
                yield _NamedArray(job.spool_id, job.name, job.submitted_at)
    ended = Job.objects.filter(cluster=cluster, ended_at__gte=since, submitted_at__gte=since)
    named = ended.filter(name__contains=".").order_by().values_list("spool_id", "name")
    for spool_id, name, submitted_at in named.annotate(first=Min("submitted_at")).iterator():
        yield _NamedArray(spool_id, name, submitted_at)


def _unknown(
    arrays: Iterable[_NamedArray], cluster: Cluster, at: datetime
) -> Iterator[UnknownArray]:
    """Yield the jobs of a request of this portal whose token no submission has."""
    parts = {}
    for array in arrays:
        if match := _NAME.fullmatch(array.name):
            parts[array] = match.groups()
    tokens = {UUID(token) for _, _, token in parts.values()}
    known = set(Submission.objects.filter(token__in=tokens).values_list("token", flat=True))
    keys = {key for key, _, _ in parts.values()}
    requests = {request.key: request for request in Request.objects.filter(key__in=keys)}
    for array, (key, number, token) in parts.items():
        if UUID(token) not in known and key in requests:
            yield UnknownArray(
                cluster=cluster,
                spool_id=array.spool_id,
                request=requests[key],
                position=int(number) - 1,
                submitted_at=array.submitted_at,
                noticed_at=at,
            )


@transaction.atomic
def _store(request: Request, arrays: list[UnknownArray], at: datetime) -> None:
    UnknownArray.objects.bulk_create(arrays, ignore_conflicts=True)
    people = responsible_users(RequestState.ON_HOLD, request.experiment_id)
    for stage in request.stages.filter(position__in={array.position for array in arrays}):
        spool_ids = [array.spool_id for array in arrays if array.position == stage.position]
        names = ", ".join(sorted(spool_ids)[:NAMED])
        if len(spool_ids) > NAMED:
            names += f" and {len(spool_ids) - NAMED} more"
        hold_stage(
            stage=stage,
            at=at,
            reason=(
                f"Since the restore of the database, jobs of this stage on {arrays[0].cluster.name}"
                f" are not known here: {names}. Cancel them there, or accept the stage as it is."
                " Then lift this hold; else they run twice."
            ),
            people=people,
        )
