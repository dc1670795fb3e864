"""Debug re-runs: one job again with more output, its changes shown before it is submitted.

The portal submits the job of a request itself, as an array of one job. It writes to separate
datasets and is not part of production or statistics. For any other job the portal offers a bundle
of its archived script and environment.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple

from django.db import transaction
from django.db.models import Q

from apps.accounts.models import User
from apps.archive.domain.comparison import ComparedJob, DiffRow, compare_fully
from apps.core.domain.background import enqueue
from apps.core.domain.events import publish
from apps.core.domain.quantities import round_duration, round_size
from apps.core.errors import InvalidTransition
from apps.datasets.domain.ledger import files_of_numbers
from apps.jobs.domain.collection.proof import SKEW
from apps.jobs.enums import DEBUG_STAGE
from apps.jobs.models import Job
from apps.production.domain.content.stages import content_of, with_stages
from apps.production.domain.outputs.datasets import DataFile
from apps.production.domain.reasons import checked_reason
from apps.production.models import Request, Stage
from apps.submission.domain.arrays.assignment import check_cluster
from apps.submission.domain.arrays.changed_resources import ResourceChanges
from apps.submission.domain.arrays.files import Listing, list_files, with_listing
from apps.submission.domain.arrays.plan import (
    events_of_test,
    files_of_test,
    lock_request,
    next_number,
)
from apps.submission.domain.arrays.rows import NewArray, new_submission
from apps.submission.domain.arrays.scripts import Overlay, make_stage_plan
from apps.submission.domain.arrays.submissions import (
    check_may_submit,
    index_of,
    publish_event,
    submission_of,
)
from apps.submission.enums import HostChoice, Purpose
from apps.submission.models import DebugProfile, Submission

MOST_SHOWN = 20
#: A profile for experiments that have none.
TRACE = DebugProfile(name="trace", description="Prints every command of the script.")


class ChangedOption(NamedTuple):
    """An option of the scheduler with its value for the job and for the debug re-run."""

    label: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class RerunPreview:
    """A debug re-run before it is submitted.

    It has the row, the lines of both scripts, and the options that change.
    """

    submission: Submission
    rows: Sequence[DiffRow]
    options: Sequence[ChangedOption]


@dataclass(frozen=True, slots=True)
class _Origin:
    """Where a job comes from: its array, its number there, and the request."""

    submission: Submission
    index: int
    request: Request


def profiles_for(job: Job) -> list[DebugProfile]:
    """Return the profiles of the job's experiment and those for all; `TRACE` if there are none."""
    debug_profiles = DebugProfile.objects.filter(
        Q(experiment=None) | Q(experiment=job.experiment_id)
    )
    return list(debug_profiles.order_by("experiment", "name")) or [TRACE]


def debug_runs_of(job: Job) -> list[tuple[Submission, Job | None]]:
    """Return the newest debug re-runs of a job, each with its job if already collected.

    Takes two queries.
    """
    submissions = (
        Submission.objects.filter(debug_of=job).select_related("request", "cluster").defer("script")
    )
    runs = list(submissions.order_by("-pk")[:MOST_SHOWN])
    since = min((run.sent_at for run in runs if run.sent_at), default=None)
    if since is None:
        return [(run, None) for run in runs]

    spools = [run.spool_id for run in runs if run.spool_id]
    jobs = Job.objects.filter(
        cluster=job.cluster_id, spool_id__in=spools, submitted_at__gte=since - SKEW
    )
    jobs = jobs.select_related("cluster").order_by("submitted_at", "attempt")
    job_by_spool_id = {rerun_job.spool_id: rerun_job for rerun_job in jobs}
    return [(run, job_by_spool_id.get(run.spool_id)) for run in runs]


def debugged_by(job: Job) -> Job | None:
    """Return the job that a debug re-run repeats; None for other jobs."""
    if not job.stage.endswith(DEBUG_STAGE):
        return None
    run = submission_of(job)
    if run is None:
        return None
    return run.debug_of


def preview(*, job: Job, profile: DebugProfile, by: User, at: datetime) -> RerunPreview:
    """Return what a debug re-run of a job of the portal would submit. Changes nothing.

    Raises `NotAllowed`, `InvalidTransition` if the portal did not send the job, `InvalidFields` if
    it cannot run.
    """
    origin = _origin_of(job, by)
    run = _unsaved_run(job, profile, origin, list_files, by=by, at=at)
    before = ComparedJob("", origin.submission.script.splitlines(), None)
    after = ComparedJob("", run.script.splitlines(), None)
    line_pairs = compare_fully(before, after, exact=True).rows or []
    # A new array has a new token, whatever the profile.
    shown = [pair for pair in line_pairs if "OPSPORTAL_SUBMISSION" not in pair.right_text]
    return RerunPreview(run, shown, _changed_options(origin.submission, run))


def start_debug_run(
    *, job: Job, profile: DebugProfile, by: User, at: datetime, reason: str = ""
) -> Submission:
    """Plan a debug re-run, which goes before other jobs whatever the state of its request.

    Raises as `preview`.
    """
    reason = checked_reason(reason, needed=False)
    return with_listing(
        lambda listing: _start_debug_run(job, profile, listing, by=by, at=at, reason=reason)
    )


@transaction.atomic
def _start_debug_run(
    job: Job, profile: DebugProfile, listing: Listing, *, by: User, at: datetime, reason: str
) -> Submission:
    origin = _origin_of(job, by)
    origin = replace(origin, request=lock_request(origin.request))
    run = _unsaved_run(job, profile, origin, listing.files_of, by=by, at=at)
    run.save(force_insert=True)

    publish_event(
        "submission.planned",
        run,
        at,
        by=by,
        reason=reason,
        debug_of=job.job_id,
        profile=run.profile,
    )
    data = {"profile": run.profile, "submission": run.number}
    publish(kind="job.debug_planned", target=job, by=by, at=at, reason=reason, data=data)
    enqueue("submission.send_to", cluster_id=run.cluster_id)
    return run


def _origin_of(job: Job, by: User) -> _Origin:
    """Return where a job comes from.

    Raises `InvalidTransition` if the portal did not submit it, and the errors of `check_may_submit`
    and `check_cluster`.
    """
    submission = submission_of(job)
    index = index_of(submission, job.job_id) if submission else None
    if submission is None or index is None:
        raise InvalidTransition(
            "The portal did not submit this job. Download its bundle to re-run it yourself."
        )
    request: Request = with_stages(Request.objects.filter(pk=submission.request_id)).get()
    check_may_submit(by, request)
    check_cluster(submission.cluster, request)
    return _Origin(submission, index, request)


def _unsaved_run(
    job: Job,
    profile: DebugProfile,
    origin: _Origin,
    files_of: Callable[[Stage], list[DataFile]],
    *,
    by: User,
    at: datetime,
) -> Submission:
    """Return the unsaved array: the same job of the stage, with the changes of the profile."""
    original = origin.submission
    request = origin.request
    plan = make_stage_plan(
        key=request.key,
        content=content_of(request),
        position=original.position,
        purpose=Purpose.DEBUG,
        test_events=events_of_test(original.cluster) if original.is_test else 0,
        job=origin.index,
    )
    files: dict[int, Sequence[str]] = {}
    stage = request.stages.all()[original.position]
    if plan.reads_files and original.is_test:
        files[origin.index] = files_of_test(request, stage, files_of)
    elif plan.reads_files:
        most_files = 1 if profile.one_file else None
        for number, names in files_of_numbers(stage, [origin.index]).items():
            files[number] = names[:most_files]

    array = NewArray(
        request=request,
        cluster=original.cluster,
        plan=plan,
        indices=[origin.index],
        files=files,
        overlay=make_overlay(profile),
        changes=ResourceChanges(events_part=ResourceChanges.read(original.changes).events_part),
    )
    run = new_submission(array, number=next_number(request), by=by, at=at)
    run.debug_of = job
    run.profile = profile.name

    memory_bytes = job.requested_memory_bytes or run.asked["memory_bytes"]
    run.asked["memory_bytes"] = round(memory_bytes * profile.memory_factor)
    time_limit_seconds = job.time_limit_seconds or run.asked["time_limit_seconds"]
    run.asked["time_limit_seconds"] = round(time_limit_seconds * profile.time_factor)
    if job.host and profile.host == HostChoice.SAME:
        run.asked["host"] = job.host
    if job.host and profile.host == HostChoice.OTHER:
        run.asked["avoided_hosts"] = [job.host]
    return run


def make_overlay(profile: DebugProfile) -> Overlay:
    """Return what a profile changes about a script."""
    return Overlay(
        environment=profile.variables,
        arguments=profile.words,
        trace=profile.trace,
        most_events=profile.most_events,
    )


def _changed_options(origin: Submission, run: Submission) -> list[ChangedOption]:
    options: dict[str, tuple[str, Callable[[Any], str]]] = {
        "memory_bytes": ("Memory", round_size),
        "time_limit_seconds": ("Time limit", round_duration),
        "host": ("Only on host", str),
        "avoided_hosts": ("Not on host", ", ".join),
    }
    changed_options = []
    for name, (label, format_value) in options.items():
        old = origin.asked.get(name)
        new = run.asked.get(name)
        if old != new:
            old_text = format_value(old) if old else "–"
            new_text = format_value(new) if new else "–"
            changed_options.append(ChangedOption(label, old_text, new_text))
    return changed_options
