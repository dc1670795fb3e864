"""Measure the phases of a job by the markers in its log."""

from collections.abc import Sequence
from dataclasses import replace

from apps.clusters.schedulers.base import JobState
from apps.diagnosis.domain.log_page.outline import Phase, find_pack_marks, list_phases
from apps.diagnosis.engine.base import Block
from apps.diagnosis.engine.formats.markers import Markers
from apps.jobs.domain.phases.logs import MarkedPhase
from apps.jobs.domain.records.conversion import clean_text
from apps.jobs.models import Job


def phases_in_logs(job: Job, blocks: Sequence[Block], markers: Markers) -> list[MarkedPhase]:
    """Return the phases with a duration in the first of these logs that marks phases.

    The phase in which a job failed lasts until the job ends, if the log is whole. The job itself
    writes the log, so a phase that lasts longer than the job ran is left out.
    """
    for block in blocks:
        marks, _ = find_pack_marks(replace(markers, levels=()), block.data)
        if phases := list_phases(block.data, block.offset, marks):
            return _measured(job, phases, is_whole=block.is_whole)
    return []


def _measured(job: Job, phases: Sequence[Phase], *, is_whole: bool) -> list[MarkedPhase]:
    measured = []
    for phase in phases:
        is_open = phase is phases[-1] and not phase.done
        if is_open and is_whole:
            seconds = _seconds_to_end(job, phases)
        else:
            seconds = phase.seconds
        name = clean_text(phase.name, 64)
        if name and seconds is not None and 0 <= seconds <= job.wall_seconds:
            measured.append(MarkedPhase(name, seconds, is_open and job.state != JobState.COMPLETED))
    return measured


def _seconds_to_end(job: Job, phases: Sequence[Phase]) -> int | None:
    """Return the seconds of the last phase.

    It ended with the job, and the first phase started with it.
    """
    first = phases[0].started_at
    last = phases[-1].started_at
    if first and last:
        return job.wall_seconds - int((last - first).total_seconds())
    return None
