"""Make submission rows from stages, and batch jobs from submission rows."""

import hashlib
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.conf import settings

from apps.accounts.models import Principal
from apps.clusters.domain import adapter_of
from apps.clusters.models import Cluster
from apps.clusters.schedulers.base import BatchJob, SchedulerError, Submits
from apps.clusters.schedulers.options import SubmissionOptions, read_options
from apps.datasets.domain.ledger import files_of_numbers
from apps.jobs.domain.phases.tokens import new_phase_token
from apps.production.domain.content.stages import content_of
from apps.production.models import Request
from apps.submission.domain.arrays.changed_resources import NO_CHANGES, ResourceChanges
from apps.submission.domain.arrays.scripts import (
    Overlay,
    StagePlan,
    make_stage_plan,
    stage_in_environment,
    write_script,
)
from apps.submission.domain.arrays.submissions import write_ranges
from apps.submission.models import EXCLUDED_HOSTS, EXCLUSIONS_DROPPED, Submission

#: Options of a cluster that are stored with an array, and passed on as fields of `BatchJob`.
PASSED_OPTIONS = frozenset({"most_at_once", "partition", "qos", "directory", "output"})


def plans_of(request: Request, *, test_events: int = 0, job: int = 0) -> list[StagePlan]:
    """Return the plan of each stage, or of its test with at most `test_events` events.

    In a parameter scan, the plans are for the point of job number `job`. Raises `InvalidFields`.
    """
    content = content_of(request)
    plans = []
    for position in range(len(request.stages.all())):
        plan = make_stage_plan(
            key=request.key, content=content, position=position, test_events=test_events, job=job
        )
        plans.append(plan)
    return plans


def adapter_that_submits(cluster: Cluster) -> Submits:
    """Return the adapter of a cluster. Raises `SchedulerError` if it cannot submit."""
    adapter = adapter_of(cluster)
    if not isinstance(adapter, Submits):
        raise SchedulerError(
            f"Jobs cannot be submitted to {cluster}: its adapter {cluster.scheduler} cannot submit."
        )
    return adapter


def options_of(cluster: Cluster) -> SubmissionOptions:
    """Return the options of a cluster for submission.

    Raises `SchedulerError` if they are invalid.
    """
    try:
        return read_options(cluster.submission)
    except ValueError as error:
        raise SchedulerError(f"options of cluster {cluster}: {error}") from error


@dataclass(frozen=True)
class NewArray:
    """An array of jobs of one stage, before it is planned.

    It has `tasks` jobs from number `first` on, or those whose numbers are `indices`. `retry_of` is
    the array whose jobs it runs again; if that ran on another cluster, `changes` names the new one.
    `files` has the files of each job by its number; None reads them from the ledger. `overlay` is
    what a debug re-run changes about the script. `changes` has the resources that differ from those
    of the stage.
    """

    request: Request
    cluster: Cluster
    plan: StagePlan
    first: int = 0
    tasks: int = 0
    indices: Sequence[int] = ()
    retry_of: Submission | None = None
    files: Mapping[int, Sequence[str]] | None = None
    overlay: Overlay | None = None
    changes: ResourceChanges = NO_CHANGES


def new_submission(array: NewArray, *, number: int, by: Principal, at: datetime) -> Submission:
    """Return an unsaved row with its script. `number` counts the arrays of the request.

    A retry keeps the changes of the array that it retries, except for memory and wall time below
    those of the stage. Raises `SchedulerError` if the options of the cluster are invalid.
    """
    plan = array.plan
    token = uuid.uuid4()
    files = array.files
    if plan.reads_files and files is None:
        stage = array.request.stages.all()[plan.position]
        numbers = array.indices or range(array.first, array.first + array.tasks)
        files = files_of_numbers(stage, numbers)
    options = options_of(array.cluster)
    changes = array.changes
    if array.retry_of is not None:
        earlier = ResourceChanges.read(array.retry_of.changes).without_reductions(
            memory_bytes=plan.memory_bytes, time_limit_seconds=plan.wall_seconds
        )
        changes = changes.combined_with(earlier)
    script = write_script(
        plan,
        first=array.first,
        indices=array.indices,
        token=str(token),
        files=files,
        overlay=array.overlay,
        events_part=changes.events_part,
    )
    return Submission(
        request=array.request,
        cluster=array.cluster,
        number=number,
        position=plan.position,
        stage_name=plan.name,
        purpose=plan.purpose,
        retry_of=array.retry_of,
        changes=changes.as_stored(),
        first=array.indices[0] if array.indices else array.first,
        tasks=len(array.indices) or array.tasks,
        indices=write_ranges(array.indices),
        token=token,
        script=script,
        script_sha256=hashlib.sha256(script.encode()).hexdigest(),
        asked={
            "memory_bytes": plan.memory_bytes,
            "time_limit_seconds": plan.wall_seconds,
            "account": options.account_of(array.request.experiment.key),
            **options.model_dump(include=set(PASSED_OPTIONS)),
            **changes.as_requested(),
        },
        due_at=at,
        created_at=at,
        created_by=str(by)[:150],
    )


def batch_job(submission: Submission) -> BatchJob:
    """Return the batch job of a row, with the options from when it was planned.

    It avoids the hosts of the plan, and those that were excluded when it was claimed.
    """
    options: dict[str, Any] = dict(submission.asked)
    avoided_hosts = tuple(options.pop("avoided_hosts", ()))
    if "avoided_host" in options:  # planned by version 0.2.0 or earlier
        avoided_hosts = (options.pop("avoided_host"),)
    excluded_hosts = options.pop(EXCLUDED_HOSTS, ())
    options.pop(EXCLUSIONS_DROPPED, None)
    return BatchJob(
        name=submission.name,
        script=submission.script,
        tasks=submission.tasks,
        environment={
            "OPSPORTAL_REQUEST": submission.request.key,
            "OPSPORTAL_STAGE": stage_in_environment(submission.stage_name, submission.purpose),
            "OPSPORTAL_SUBMISSION": str(submission.token),
            "OPSPORTAL_URL": settings.PORTAL_URL,
            "OPSPORTAL_PHASE_TOKEN": new_phase_token(
                cluster_id=submission.cluster_id,
                experiment_id=submission.request.experiment_id,
                request_key=submission.request.key,
                stage=submission.stage_name,
                label=submission.token.hex,
                at=submission.created_at,
            ),
        },
        comment=f"opsportal:{submission.token}",
        avoided_hosts=tuple(dict.fromkeys([*avoided_hosts, *excluded_hosts])),
        **options,
    )
