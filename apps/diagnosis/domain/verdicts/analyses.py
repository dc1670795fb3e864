"""Read and analyse the logs of one job, outside of transactions; the caller stores the outcome."""

import logging
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Self

from django.db import DatabaseError

from apps.core.domain.work import BackOff
from apps.diagnosis import wording
from apps.diagnosis.domain.known_errors.current import current_classifiers
from apps.diagnosis.domain.packs.current import markers_by_experiment
from apps.diagnosis.domain.reading.attempts import attempts_by_job, open_own_log
from apps.diagnosis.domain.reading.excerpts import excerpt_of
from apps.diagnosis.domain.reading.job_facts import codes_of_jobs, facts_of, outages_during_jobs
from apps.diagnosis.domain.reading.line_templates import template_lines
from apps.diagnosis.domain.reading.log_access import locate_logs
from apps.diagnosis.domain.reading.log_windows import block_of
from apps.diagnosis.domain.reading.posted_logs import posted_block, posted_by
from apps.diagnosis.domain.reading.success_samples import with_novel_lines
from apps.diagnosis.domain.verdicts.judged_jobs import JudgedJob, needs_verdict
from apps.diagnosis.domain.verdicts.phases import phases_in_logs
from apps.diagnosis.engine.base import Block, ExitCode, LogClassifier, Outage, Reason
from apps.diagnosis.engine.diagnose import Diagnosis, diagnose, read_log
from apps.diagnosis.engine.evidence.catalogue import KnownErrorCatalogue
from apps.diagnosis.engine.evidence.secrets import starred_block, starred_text
from apps.diagnosis.engine.evidence.survey import HEAD_BYTES, Survey, survey
from apps.diagnosis.engine.formats.markers import Markers
from apps.diagnosis.engine.logs.compressed import opened_text
from apps.diagnosis.engine.logs.tail import (
    WHOLE_BYTES,
    LogError,
    LogMissing,
    LogOverwritten,
    LogRefused,
)
from apps.diagnosis.enums import Category, HarvestState, ReasonKind, Stream
from apps.diagnosis.models import Evidence, LogExcerpt, LogHarvest, PostedLog
from apps.jobs.domain.phases.logs import MarkedPhase
from apps.jobs.domain.records.conversion import clean_text
from apps.jobs.models import Job
from apps.search.domain.templates import TemplateLine

log = logging.getLogger(__name__)

#: Delays before a missing log is searched again: file systems lag behind the scheduler.
BACK_OFF = BackOff((20, 60))
#: After this many interrupted attempts, a harvest fails.
ATTEMPTS = 5
EVIDENCE_LIMIT = 200


@dataclass(frozen=True, slots=True)
class AnalysisInput:
    """The data that jobs are analysed with, fetched at once for many jobs.

    Attempts, outages and posted logs are by primary key of the job, markers of phases and levels by
    that of the experiment.
    """

    classifiers: Mapping[str, LogClassifier]
    attempts: Mapping[int, Sequence[Job]]
    outages: Mapping[int, Sequence[Outage]]
    exit_codes: tuple[ExitCode, ...]
    posted: Mapping[int, Mapping[Stream, PostedLog]]
    markers: Mapping[int | None, Markers]

    @classmethod
    def of(cls, jobs: Sequence[Job]) -> Self:
        """Fetch the data of these jobs in a constant number of queries."""
        return cls(
            current_classifiers(),
            attempts_by_job(jobs),
            outages_during_jobs(jobs),
            codes_of_jobs(jobs),
            posted_by(jobs),
            markers_by_experiment({job.experiment_id for job in jobs}),
        )


@dataclass(frozen=True, slots=True)
class ReadResult:
    """The result of reading one log: a block of it and a survey of what precedes it, or an error.

    `change` describes how the log changed while it was read. `excerpt` is the stored excerpt if it
    was read instead of the log.
    """

    stream: Stream
    path: str
    block: Block | None = None
    before: Survey | None = None
    error: LogError | None = None
    change: str = ""
    excerpt: LogExcerpt | None = None


@dataclass(frozen=True, slots=True)
class HarvestContent:
    """Excerpts, evidence and phases of a harvest: unsaved rows, and stored excerpts that stay.

    Without `phases`, the stored phases stay; the same holds for `lines`, the templates of the lines
    of the logs. `omitted` are the IDs of known errors that were too slow for the logs.
    """

    excerpts: Sequence[LogExcerpt]
    evidence: Sequence[Evidence]
    phases: Sequence[MarkedPhase] | None = None
    lines: Mapping[int, TemplateLine] | None = None
    omitted: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class HarvestOutcome:
    """The outcome of a claimed harvest.

    Without `content`, the stored excerpts and evidence stay. With `wait_seconds`, the harvest is
    queued again after this time.
    """

    harvest: LogHarvest
    state: HarvestState
    last_error: str = ""
    wait_seconds: float = 0.0
    content: HarvestContent | None = None
    judged_job: JudgedJob | None = None
    needs_survey: bool = False
    #: Whether a log itself was read, not only its stored excerpt.
    is_read: bool = True

    @property
    def needs_no_verdict(self) -> bool:
        """Whether the logs show that the job has none."""
        return self.content is not None and self.judged_job is None

    @property
    def size_bytes(self) -> int:
        """Return roughly how much memory the content takes."""
        kept = self.content or HarvestContent((), ())
        return sum(len(excerpt.compressed) for excerpt in kept.excerpts) + sum(
            len(evidence.text) for evidence in kept.evidence
        )


def analyse(harvest: LogHarvest, inputs: AnalysisInput, at: datetime) -> HarvestOutcome:
    """Read the logs of a claimed harvest and decide the verdict.

    Problems with a log are part of the outcome. A missing log is searched again a little later.
    """
    job = harvest.job
    try:
        if harvest.attempts > ATTEMPTS:
            raise RuntimeError(f"log analysis was interrupted {ATTEMPTS} times")
        paths = locate_logs(job=job, at=at)
        paths += [(stream, "") for stream in inputs.posted[job.pk] if stream not in dict(paths)]
        results = [_read(harvest, inputs, stream, path) for stream, path in paths]

        errors = [result.error for result in results if result.error]
        temporary = [
            error for error in errors if not isinstance(error, LogRefused | LogOverwritten)
        ]
        if temporary and job.started_at and harvest.attempts <= len(BACK_OFF.seconds):
            wait = BACK_OFF.seconds[harvest.attempts - 1]
            return HarvestOutcome(
                harvest, HarvestState.QUEUED, _join_messages(temporary), wait_seconds=wait
            )

        return _conclude(harvest, inputs, results)
    except DatabaseError:
        raise
    except Exception as error:  # a log that breaks the reader must not be retried forever
        log.exception("harvest of %s failed", job)
        return decide_without_log(harvest, error)


def analyse_whole(harvest: LogHarvest, at: datetime) -> HarvestOutcome | None:
    """Search the large logs of a finished harvest completely and decide the verdict again.

    Return None if there is nothing to add.
    """
    inputs = AnalysisInput.of([harvest.job])
    paths = locate_logs(job=harvest.job, at=at)
    results = [_read(harvest, inputs, stream, path, whole=True) for stream, path in paths]
    if any(result.error for result in results) or not any(result.before for result in results):
        return None  # the stored content was read while all logs existed
    return _conclude(harvest, inputs, results)


def decide_without_log(harvest: LogHarvest, error: Exception) -> HarvestOutcome:
    """Return the outcome of a harvest that failed: a verdict from the scheduler's facts alone."""
    reasons = [Reason(ReasonKind.LOG, wording.ANALYSIS_FAILED)]
    diagnosis = diagnose(facts_of(harvest.job), [], classifiers={}, reasons=reasons)
    message = clean_text(f"{type(error).__name__}: {error}", 2000)
    judged_job = JudgedJob.of(harvest.job, diagnosis.verdict, [])
    return HarvestOutcome(harvest, HarvestState.FAILED, message, judged_job=judged_job)


def _read(
    harvest: LogHarvest, inputs: AnalysisInput, stream: Stream, path: str, *, whole: bool = False
) -> ReadResult:
    """Read a log; if that fails, read the log that the job posted, or else the stored excerpt.

    The excerpt of a log that the portal is no longer allowed to read is not used. Of a log larger
    than 64 MB, the end is read; what precedes it is surveyed from the beginning, completely if
    `whole` is set.
    """
    job = harvest.job
    before = None
    change = ""
    posted = inputs.posted[job.pk].get(stream)
    try:
        if not path:
            raise LogMissing(wording.LOG_PATH_UNKNOWN)
        with (
            open_own_log(job, stream, path, inputs.attempts[job.pk]) as (file, part),
            opened_text(file, part) as descriptor,
        ):
            opened = os.fstat(file)
            block = replace(starred_block(descriptor, read_log(descriptor, part)), stream=stream)
            if not block.is_whole:
                if whole or block.file_bytes - block.begin <= WHOLE_BYTES:
                    limit = None
                else:
                    limit = HEAD_BYTES
                catalogue = inputs.classifiers[KnownErrorCatalogue.name]
                before = survey(
                    descriptor, block, facts_of(job, codes=()), catalogue, limit_bytes=limit
                )
                block = before.numbered(block)
            change = _change(opened, os.fstat(file))
    except LogError as error:
        if posted:
            return ReadResult(stream, path, block=posted_block(posted), change=wording.LOG_POSTED)
        excerpt = harvest.excerpts.filter(stream=stream, path=path).first()
        if excerpt is None or isinstance(error, LogRefused):
            return ReadResult(stream, path, error=error)
        change = wording.log_read_before(harvest.harvested_at)
        return ReadResult(
            stream, path, block=block_of(excerpt), error=error, change=change, excerpt=excerpt
        )
    return ReadResult(stream, path, block=block, before=before, change=change)


def _change(before: os.stat_result, now: os.stat_result) -> str:
    """Return how a log changed while it was open for reading; "" if it did not."""
    if now.st_nlink < before.st_nlink:
        return wording.LOG_REPLACED
    if now.st_size < before.st_size:
        return wording.LOG_SHRANK
    return wording.LOG_GREW if now.st_size > before.st_size else ""


def _join_messages(errors: Sequence[LogError]) -> str:
    return clean_text("; ".join(str(error) for error in errors), 2000)


@dataclass(slots=True)
class _LogContents:
    """What the logs of a harvest contain. `fresh_blocks` are the blocks not from stored excerpts.

    `excerpts` are stored and new ones. The survey of a large log may have to be completed later.
    """

    blocks: list[Block] = field(default_factory=list)
    fresh_blocks: list[Block] = field(default_factory=list)
    excerpts: list[LogExcerpt] = field(default_factory=list)
    needs_survey: bool = False


def _gather_contents(harvest: LogHarvest, results: Sequence[ReadResult]) -> _LogContents:
    """Return the contents of the logs that were read."""
    contents = _LogContents()
    for result in results:
        if result.block is None:
            continue
        contents.blocks.append(result.block)
        if result.before and not result.before.reaches(result.block):
            contents.needs_survey = True
        if result.excerpt:
            contents.excerpts.append(result.excerpt)
        else:
            contents.fresh_blocks.append(result.block)
            contents.excerpts.append(excerpt_of(harvest, result.path, result.block))
    return contents


def _conclude(
    harvest: LogHarvest, inputs: AnalysisInput, results: Sequence[ReadResult]
) -> HarvestOutcome:
    """Return the outcome of the logs that were read.

    Stored content stays if some of it cannot be read again.
    """
    job = harvest.job
    errors = [result.error for result in results if result.error]
    if _has_evidence_before_excerpts(harvest, results):
        return HarvestOutcome(harvest, HarvestState.DONE, _join_messages(errors), is_read=False)

    contents = _gather_contents(harvest, results)
    markers = inputs.markers[job.experiment_id]
    diagnosis = diagnose(
        replace(facts_of(job, codes=inputs.exit_codes), levels=markers.levels),
        contents.blocks,
        classifiers=inputs.classifiers,
        outages=inputs.outages[job.pk],
        reasons=_reasons_about_logs(job, results),
        surveys={result.stream: result.before for result in results if result.before},
    )
    diagnosis = _with_refusal(with_novel_lines(diagnosis, job, contents.blocks), results)

    phases = None
    lines = None
    if contents.fresh_blocks:
        phases = phases_in_logs(job, contents.fresh_blocks, markers)
        lines = template_lines(contents.blocks)
    judged_job = None
    if needs_verdict(job, diagnosis.verdict):
        judged_job = JudgedJob.of(job, diagnosis.verdict, contents.blocks)
    return HarvestOutcome(
        harvest,
        _state_of(results),
        _join_messages(errors),
        content=HarvestContent(
            contents.excerpts,
            evidence_of(harvest, diagnosis),
            phases=phases,
            lines=lines,
            omitted=diagnosis.omitted,
        ),
        judged_job=judged_job,
        needs_survey=contents.needs_survey,
        is_read=bool(contents.fresh_blocks) or not contents.blocks,
    )


def _reasons_about_logs(job: Job, results: Sequence[ReadResult]) -> list[Reason]:
    """Return why logs could not be read, with the fix, and how they changed meanwhile."""
    problems = []
    for result in results:
        if isinstance(result.error, LogRefused):
            problems.append(f"{result.error}. {wording.REFUSAL_FIXES[result.error.refusal]}")
        elif result.error:
            problems.append(str(result.error))
    problems += [result.change for result in results if result.change]
    if not results and job.started_at:
        problems.append(wording.LOG_PATH_UNKNOWN)
    elif not results:
        problems.append(wording.NEVER_STARTED)
    return [Reason(ReasonKind.LOG, clean_text(problem)) for problem in problems]


def _with_refusal(diagnosis: Diagnosis, results: Sequence[ReadResult]) -> Diagnosis:
    """Return the diagnosis, summed up by the refusal of the logs if nothing else explains it."""
    verdict = diagnosis.verdict
    refused = [result.error for result in results if isinstance(result.error, LogRefused)]
    is_explained = verdict.category is not Category.UNKNOWN or verdict.cause is not None
    if not refused or is_explained or any(result.block for result in results):
        return diagnosis
    why = wording.log_refused(refused[0].refusal)
    summary = f"{why}. {wording.REFUSAL_FIXES[refused[0].refusal]}, then re-analyse the log."
    return replace(diagnosis, verdict=replace(verdict, summary=summary, log_refused=why))


def _has_evidence_before_excerpts(harvest: LogHarvest, results: Sequence[ReadResult]) -> bool:
    """Return whether evidence precedes the stored excerpts of logs that are gone.

    A new analysis of the excerpts would lose this evidence.
    """
    excerpts = [result.excerpt for result in results if result.excerpt]
    return any(
        harvest.evidence.filter(stream=excerpt.stream, offset__lt=excerpt.first_offset).exists()
        for excerpt in excerpts
    )


def _state_of(results: Sequence[ReadResult]) -> HarvestState:
    if any(result.block for result in results):
        return HarvestState.DONE
    kinds = [type(result.error) for result in results]
    if LogRefused in kinds:
        return HarvestState.PATH_NOT_ALLOWED
    if all(issubclass(kind, LogMissing) for kind in kinds):
        return HarvestState.LOG_NOT_FOUND
    return HarvestState.FAILED


def evidence_of(harvest: LogHarvest, diagnosis: Diagnosis) -> list[Evidence]:
    """Return the known errors found, as unsaved rows."""
    evidence = []
    for hit in diagnosis.hits[:EVIDENCE_LIMIT]:
        evidence.append(
            Evidence(
                harvest=harvest,
                stream=hit.stream,
                pattern=hit.pattern.id[:64],
                role=hit.pattern.role,
                category=hit.pattern.category,
                service=hit.pattern.service[:64],
                line=hit.line,
                offset=hit.offset,
                text=starred_text(hit.text),
            )
        )
    return evidence
