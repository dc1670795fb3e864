"""Facts about a job for its diagnosis: scheduler facts, logs, submission, and service outages."""

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC
from urllib.parse import quote

from apps.archive.domain.store.contents import DamagedContent, archived_job_for, read_blob
from apps.clusters.domain import log_url_of
from apps.clusters.schedulers.base import JobState
from apps.clusters.schedulers.environment import variables_in
from apps.diagnosis.domain.known_errors.exit_codes import codes_of
from apps.diagnosis.domain.packs.current import markers_of
from apps.diagnosis.engine.base import ExitCode, JobFacts, Outage
from apps.diagnosis.engine.evidence.exit_codes import numbers_of
from apps.diagnosis.enums import CodeKind, Overlap, Stream
from apps.jobs.domain.collection.origin import log_location
from apps.jobs.enums import stage_of_request
from apps.jobs.models import Job
from apps.production.models import Stage
from apps.statusboard.domain.board.board import StateSpan
from apps.statusboard.domain.board.outages import OUTAGES, Exposure, outages_of_each
from apps.statusboard.enums import State


def facts_of(job: Job, *, codes: tuple[ExitCode, ...] | None = None) -> JobFacts:
    """Return the scheduler's facts about a job, as input of the engine.

    `codes` are meanings of exit codes; without them, the meanings for the job are queried.
    """
    facts = JobFacts(
        scheduler=job.cluster.scheduler,
        state=JobState(job.state),
        exit_code=job.exit_code,
        signal=job.signal,
        cancelled_by=job.cancelled_by,
        reason=job.reason,
        host=job.host,
        experiment=job.experiment.key if job.experiment else "",
        wall_seconds=job.wall_seconds,
        time_limit_seconds=job.time_limit_seconds,
        max_memory_bytes=job.max_memory_bytes,
        requested_memory_bytes=job.requested_memory_bytes,
    )
    if codes is None:
        codes = codes_of(numbers_of(facts))
    return replace(facts, exit_codes=codes)


def facts_for_logs(job: Job) -> JobFacts:
    """Return the facts for an analysis of one job's logs, with the log levels of its experiment."""
    return replace(facts_of(job), levels=markers_of(job.experiment_id).levels)


def codes_of_jobs(jobs: Iterable[Job]) -> tuple[ExitCode, ...]:
    """Return all meanings of the numbers that these jobs ended with, in one query."""
    numbers: set[tuple[CodeKind, int]] = set()
    for job in jobs:
        numbers.update(numbers_of(facts_of(job, codes=())))
    return codes_of(numbers)


def log_paths(job: Job) -> list[tuple[Stream, str]]:
    """Return the logs that can exist: none for a job that never started, and none at /dev/null.

    They are files, or URLs if the cluster has a `log_url`, which jobs cannot influence. Until the
    scheduler has reported the paths, and for completed jobs, they come from accounting.
    """
    if job.started_at and (url := log_url_of(job.cluster)):
        streams = [Stream.STDOUT]
        if "{stream}" in url:
            streams.append(Stream.STDERR)
        return [(stream, _fill_in_url(url, job, stream)) for stream in streams]
    location = log_location(job)
    paths = [(Stream.STDOUT, location.path), (Stream.STDERR, location.error_path)]
    known_paths = []
    for stream, path in paths:
        if job.started_at and path and path != os.devnull:
            known_paths.append((stream, path))
    return known_paths


def _fill_in_url(url: str, job: Job, stream: Stream) -> str:
    """Fill in the placeholders of the URL of a log.

    The values filled in may be chosen by a user; they are quoted so that they cannot change the
    path.
    """
    values = {
        "job_id": job.job_id,
        "raw_id": job.raw_id,
        "attempt": job.attempt,
        "user": job.user,
        "stream": stream,
    }
    return url.format_map(
        {name: quote(str(value), safe="").replace(".", "%2E") for name, value in values.items()}
    )


def submission_of(job: Job) -> tuple[bytes, Mapping[str, str]]:
    """Return the captured script and environment, empty if not captured or if damaged."""
    archived = archived_job_for(job)
    try:
        script = read_blob(archived.script) if archived else b""
        environment = read_blob(archived.environment) if archived else b""
    except DamagedContent:
        return b"", {}
    variables = (
        (name.decode(errors="replace"), value.decode(errors="replace"))
        for name, value in variables_in(environment)
    )
    return script, dict(variables)


def services_needed_by(jobs: Sequence[Job]) -> dict[int, set[int]]:
    """Return the IDs of services needed by each job's stage or cluster, by job ID.

    A test or a debug re-run needs the services of its stage.

    The owner of a job controls the environment variable that names the stage, so only requests of
    the job's experiment count.
    """
    keys = {job.request_key for job in jobs if job.request_key}
    if keys:
        stages = Stage.objects.filter(request__key__in=keys, services__isnull=False)
    else:
        stages = Stage.objects.none()
    needed: dict[tuple[object, ...], set[int]] = defaultdict(set)
    for key, experiment, stage, service in stages.values_list(
        "request__key", "request__experiment_id", "name", "services"
    ):
        needed[key, experiment, stage].add(service)
    of_cluster = {job.pk: {pk} if (pk := job.cluster.service_id) else set() for job in jobs}
    needs = {}
    for job in jobs:
        stage = stage_of_request(job.stage)
        needs[job.pk] = needed[job.request_key, job.experiment_id, stage] | of_cluster[job.pk]
    return needs


def outages_during_job(job: Job) -> list[Outage]:
    """Return whether each service that the job needs had an outage while the job ran.

    The list is empty if the job never ran.
    """
    return outages_during_jobs([job])[job.pk]


def outages_during_jobs(jobs: Sequence[Job]) -> dict[int, list[Outage]]:
    """Return the outages during each of these jobs, by job ID, in a constant number of queries."""
    needed = services_needed_by(jobs)
    ran = {}
    for job in jobs:
        if job.started_at:
            ran[job.pk] = Exposure(
                needed[job.pk], job.started_at, max(job.started_at, job.ended_at)
            )
    by_job: dict[int, list[Outage]] = {job.pk: [] for job in jobs}
    for pk, outages in zip(ran, outages_of_each(list(ran.values())), strict=True):
        for outage in outages:
            was_degraded = outage.state == State.DEGRADED
            by_job[pk].append(
                Outage(
                    outage.service.slug,
                    Overlap(outage.overlap),
                    _outage_text(outage.intervals, was_degraded=was_degraded),
                    outage.service.name,
                    was_degraded,
                )
            )
    return by_job


def _outage_text(spans: Iterable[StateSpan], *, was_degraded: bool) -> str:
    """Describe outages, such as `down 2026-11-20T12:03Z to 2026-11-20T12:40Z` or `down since …`.

    Pages show the times in local time. The text follows the state if it was only degraded.
    """
    parts = []
    for span in spans:
        if span.state in OUTAGES:
            period = _period(span)
            parts.append(period if was_degraded else f"{span.state.value} {period}")
    return ", ".join(parts[:3]) + (" and more" if len(parts) > 3 else "")


def _period(span: StateSpan) -> str:
    start = f"{span.started_at.astimezone(UTC):%Y-%m-%dT%H:%MZ}"
    if span.ended_at:
        return f"{start} to {span.ended_at.astimezone(UTC):%Y-%m-%dT%H:%MZ}"
    return f"since {start}"
