"""Link archived jobs to job records and to the scheduler's data, whichever arrives first."""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from django.db import connection, transaction
from django.db.models import Exists, OuterRef, QuerySet

from apps.accounts.models import Experiment
from apps.archive.domain.sinks import send_described
from apps.archive.domain.store.contents import CLOCK_TOLERANCE, archived_jobs_for
from apps.archive.models import ArchivedJob
from apps.clusters.domain import adapter_of
from apps.clusters.models import Cluster
from apps.clusters.schedulers.base import (
    KnowsSubmissions,
    ReadsArguments,
    SchedulerError,
    Submission,
)
from apps.core.domain.bulk import update_objects
from apps.core.domain.events import publish
from apps.core.domain.secrets.masking import Masker
from apps.jobs.domain.collection.masking_rules import current_masker, masker_of
from apps.jobs.domain.collection.origin import attach_origin
from apps.jobs.domain.live.queue import Origin
from apps.jobs.domain.records.conversion import clean_text
from apps.jobs.domain.records.jobs import jobs_in_spool
from apps.jobs.enums import FAILED_STATES, INTERRUPTED_STATES, WORST_FIRST
from apps.jobs.models import Job

#: The lock that `store_jobs` holds.
_STORING_LOCK = "archive.store"
_BATCH = 1000
_DESCRIBED = ("user", "account", "name")
#: The scheduler is queried for jobs without a user that were captured within this time, among this
#: many of the newest.
ASKED_FOR = timedelta(hours=1)
ASKED_AMONG = 50_000

# Of each task, the last attempt counts. If two submissions within the tolerance have the same ID, a
# job belongs to the nearer one, unless the two are in conflict: then it may belong to the first
# one, however far away that is. A text from accounting may be empty if a job ended before
# accounting had all of it: `max` takes the text of another task.
_FACTS = """
    WITH submission AS (
        SELECT id, cluster_id, job_id, submitted_at,
            CASE conflict WHEN '' THEN submitted_at - lag(submitted_at) OVER same END
                AS after_another,
            CASE conflict WHEN '' THEN lead(submitted_at) OVER same - submitted_at END
                AS before_another
        FROM archive_archivedjob
        WHERE (cluster_id, job_id) IN (
            SELECT cluster_id, job_id FROM archive_archivedjob WHERE id = ANY(%s)
        )
        WINDOW same AS (PARTITION BY cluster_id, job_id ORDER BY submitted_at)
    ), task AS (
        SELECT DISTINCT ON (submission.id, job.job_id) submission.id AS archived, job.*
        FROM submission JOIN jobs_job job ON job.cluster_id = submission.cluster_id
            AND job.spool_id = submission.job_id
            AND job.submitted_at
                >= submission.submitted_at - least(make_interval(secs => %s), after_another / 2)
            AND job.submitted_at
                <= submission.submitted_at + least(make_interval(secs => %s), before_another / 2)
        WHERE submission.id = ANY(%s)
        ORDER BY submission.id, job.job_id, job.submitted_at DESC, job.attempt DESC
    )
    SELECT archived, array_agg(DISTINCT state), count(*),
        count(*) FILTER (WHERE state = ANY(%s)), count(*) FILTER (WHERE state = ANY(%s)),
        max(experiment_id), max("user"), max(account), max(name), max(submit_line)
    FROM task GROUP BY archived"""


class LinkFacts(NamedTuple):
    """Accounting's facts about an archived job, over all its tasks."""

    states: list[str]
    tasks: int
    failed: int
    interrupted: int
    experiment_id: int | None
    user: str
    account: str
    name: str
    submit_line: str


@transaction.atomic
def link_collected(*, cluster: Cluster, job_pks: Iterable[int], at: datetime) -> None:
    """Link a batch of collected jobs to their scripts, and publish `jobs.linked` for all of them.

    The event includes jobs that were not captured, so that its subscribers get every collected job.
    """
    jobs = Job.objects.filter(pk__in=job_pks)
    link_jobs(jobs=jobs, at=at)
    _publish_linked(cluster, jobs.values_list("pk", flat=True), at, after="jobs.collected")


@transaction.atomic
def link_stored(*, cluster: Cluster, spool_ids: list[str], at: datetime) -> None:
    """Link new scripts to jobs collected before; publish `jobs.linked` for them, if any."""
    linked = link_jobs(jobs=jobs_in_spool(cluster_id=cluster.pk, spool_ids=spool_ids), at=at)
    _publish_linked(cluster, linked, at, after="archive.stored")


def _publish_linked(cluster: Cluster, job_pks: Iterable[int], at: datetime, *, after: str) -> None:
    """Publish the primary keys, with the kind of the event that caused the link."""
    if keys := sorted(job_pks):
        publish(
            kind="jobs.linked",
            target=cluster,
            by="archive",
            at=at,
            data={"jobs": keys, "after": after},
        )


@transaction.atomic
def link_jobs(*, jobs: Iterable[Job], at: datetime) -> set[int]:
    """Link job records to their captured submissions; return the keys of the jobs that have one.

    Request and stage from the environment are copied to the job. Its experiment is copied to the
    archive, where accounting takes precedence over the environment. The state is copied too, and so
    are user, account, name and arguments if the spool did not have them.
    """
    # Otherwise a job stored and collected at the same time could be linked by neither transaction.
    _wait_for_storing()
    captured = archived_jobs_for(jobs)
    origins = {}
    for pk, archived_job in captured.items():
        if archived_job.request_key:
            origins[pk] = (archived_job.request_key, archived_job.stage)
    attach_origin(origins=origins, at=at)
    take_facts(archived={archived_job.pk for archived_job in captured.values()})
    return set(captured)


def _wait_for_storing() -> None:
    """Wait for the transactions that are storing jobs.

    Transactions that start later see the caller's data.
    """
    with connection.cursor() as cursor:
        for function in ("pg_advisory_lock", "pg_advisory_unlock"):
            cursor.execute(f"SELECT {function}(hashtext(%s))", [_STORING_LOCK])


@transaction.atomic
def take_facts(*, archived: Iterable[int]) -> int:
    """Copy facts from accounting to the archived jobs with these IDs; return how many changed."""
    # Lock before the query, so that two workers that link tasks of one array see each other's
    # changes.
    rows = {archived_job.pk: archived_job for archived_job in _locked(archived)}
    clusters = {archived_job.cluster for archived_job in rows.values()}
    readers = {cluster: _arguments_reader(cluster) for cluster in clusters}
    # The collector has already masked by the settings, and by the rules of that time.
    masker = masker_of(names="")

    changes = {}
    for pk, facts in _facts_of(list(rows)):
        archived_job = rows[pk]
        worst_state = next((state.value for state in WORST_FIRST if state in facts.states), "")
        values: dict[str, object] = {
            "state": worst_state,
            "tasks": facts.tasks,
            "worst_tasks": facts.failed or facts.interrupted,
        }
        if facts.experiment_id is not None:
            values["experiment_id"] = facts.experiment_id

        arguments = ""
        reader = readers[archived_job.cluster]
        if reader:
            arguments = reader.script_arguments(submit_line=facts.submit_line, name=facts.name)
        arguments = masker.mask_text(arguments)
        values |= _missing(
            archived_job,
            user=facts.user,
            account=facts.account,
            name=facts.name,
            arguments=arguments,
        )
        changes[archived_job] = values
    return _save(changes)


def _facts_of(archived: list[int]) -> list[tuple[int, LinkFacts]]:
    """Return accounting's facts about the archived jobs with these IDs, each with its ID."""
    tolerance = CLOCK_TOLERANCE.total_seconds()
    failed = [state.value for state in FAILED_STATES]
    interrupted = [state.value for state in INTERRUPTED_STATES]
    with connection.cursor() as cursor:
        cursor.execute(_FACTS, [archived, tolerance, tolerance, archived, failed, interrupted])
        return [(pk, LinkFacts(*columns)) for pk, *columns in cursor.fetchall()]


@transaction.atomic
def claim_archived(*, experiment: Experiment) -> int:
    """Assign an experiment's archived jobs to it, by accounting or by the key of their request.

    Return how many changed. Running it again changes nothing.
    """
    _wait_for_storing()
    named = ArchivedJob.objects.filter(
        experiment=None, request_key__iregex=rf"^{re.escape(experiment.key)}-[^-]*$"
    )
    claimed = named.update(experiment=experiment)
    of_it = Job.objects.filter(
        cluster=OuterRef("cluster"), spool_id=OuterRef("job_id"), experiment=experiment
    )
    others = ArchivedJob.objects.filter(Exists(of_it)).exclude(experiment=experiment)
    ids = list(others.values_list("pk", flat=True))
    return claimed + sum(
        take_facts(archived=ids[first : first + _BATCH]) for first in range(0, len(ids), _BATCH)
    )


def captured_origins(cluster: Cluster, spool_ids: Sequence[str]) -> dict[str, list[Origin]]:
    """Return request and stage of the captured submissions with these IDs that name a request."""
    known: dict[str, list[Origin]] = {}
    for first in range(0, len(spool_ids), _BATCH):
        some = ArchivedJob.objects.filter(
            cluster=cluster, job_id__in=spool_ids[first : first + _BATCH]
        )
        rows = some.exclude(request_key="").values_list(
            "job_id", "submitted_at", "request_key", "stage", "user"
        )
        for spool_id, submitted_at, key, stage, user in rows:
            known.setdefault(spool_id, []).append(Origin(submitted_at, key, stage, user))
    return known


def link_all(*, cluster: Cluster) -> int:
    """Copy accounting's facts to all archived jobs of a cluster; return how many changed."""
    ids = ArchivedJob.objects.filter(cluster=cluster).order_by("pk").values_list("pk", flat=True)
    changed = 0
    last = 0
    while batch := list(ids.filter(pk__gt=last)[:_BATCH]):
        changed += take_facts(archived=batch)
        last = batch[-1]
    return changed


def describe_jobs(*, cluster: Cluster, at: datetime) -> int:
    """Read users, names and arguments of recently captured jobs from the scheduler.

    Return how many changed. This makes them known while a job waits or runs, and on a cluster
    without accounting. The scheduler is queried at most once, and only if it supports this and a
    user is missing. Raises `SchedulerError`.
    """
    newest = ArchivedJob.objects.order_by("-pk").values_list("pk", flat=True).first() or 0
    recent = ArchivedJob.objects.filter(
        pk__gt=newest - ASKED_AMONG, cluster=cluster, captured_at__gte=at - ASKED_FOR
    )
    missing: dict[str, list[ArchivedJob]] = {}
    for archived_job in recent.filter(user=""):
        missing.setdefault(archived_job.job_id, []).append(archived_job)
    scheduler = adapter_of(cluster)
    if not missing or not isinstance(scheduler, KnowsSubmissions):
        return 0

    submissions: dict[int, Submission] = {}
    for submission in scheduler.submissions():
        for archived_job in missing.get(submission.spool_id, ()):
            if abs(archived_job.submitted_at - submission.submitted_at) <= CLOCK_TOLERANCE:
                submissions[archived_job.pk] = submission
    return _describe(submissions, current_masker())


@transaction.atomic
def _describe(submissions: dict[int, Submission], masker: Masker) -> int:
    """Fill in missing values of rows from their submissions, given by primary key.

    Return how many changed.
    """
    changes = {}
    for archived_job in _locked(submissions):
        submission = submissions[archived_job.pk]
        changes[archived_job] = _missing(
            archived_job,
            user=submission.user,
            account=submission.account,
            name=submission.name,
            arguments=masker.mask_text(clean_text(submission.arguments)),
        )
    return _save(changes)


def _locked(ids: Iterable[int]) -> QuerySet[ArchivedJob]:
    archived_jobs = ArchivedJob.objects.select_for_update(of=("self",)).select_related("cluster")
    return archived_jobs.filter(pk__in=list(ids)).order_by("pk")


def _arguments_reader(cluster: Cluster) -> ReadsArguments | None:
    try:
        scheduler = adapter_of(cluster)
    except SchedulerError:  # the collector reports it
        return None
    return scheduler if isinstance(scheduler, ReadsArguments) else None


def _missing(archived_job: ArchivedJob, **texts: str) -> dict[str, object]:
    """Return the texts that the row lacks, cut to the lengths of its columns."""
    lengths = {}
    for name in texts:
        lengths[name] = getattr(ArchivedJob._meta.get_field(name), "max_length", None)
    missing: dict[str, object] = {}
    for name, text in texts.items():
        if text and not getattr(archived_job, name):
            missing[name] = clean_text(text, lengths[name])
    return missing


def _save(changes: Mapping[ArchivedJob, Mapping[str, object]]) -> int:
    """Save the rows whose values differ; return their number.

    Jobs that did not have a user before are sent to the sinks again.
    """
    changed = []
    described = []
    for archived_job, values in changes.items():
        if any(values.get(name) and not getattr(archived_job, name) for name in _DESCRIBED):
            described.append(archived_job.pk)
        if any(getattr(archived_job, name) != value for name, value in values.items()):
            changed.append(archived_job)
        for name, value in values.items():
            setattr(archived_job, name, value)

    fields = ["experiment", "state", "tasks", "worst_tasks", "user", "account", "name", "arguments"]
    saved = update_objects(changed, fields)
    send_described(archived=described)
    return saved
