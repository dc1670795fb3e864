"""Sample the logs of successful jobs, and find lines of a failed job that none of them contains."""

import logging
import time
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

import zstandard
from django.db import transaction
from django.db.models import Count, Max

from apps.clusters.schedulers.base import JobState
from apps.diagnosis import wording
from apps.diagnosis.domain.reading.attempts import attempts_by_job
from apps.diagnosis.domain.reading.excerpts import excerpt_of
from apps.diagnosis.domain.reading.log_access import locate_logs
from apps.diagnosis.domain.reading.log_ends import read_end
from apps.diagnosis.engine.base import Block, Reason
from apps.diagnosis.engine.diagnose import Diagnosis
from apps.diagnosis.engine.evidence.novelty import (
    Baseline,
    NovelLine,
    baseline_of,
    novel_lines,
    sample_of,
)
from apps.diagnosis.enums import Confidence, HarvestState, ReasonKind, Role, Stream
from apps.diagnosis.models import LogExcerpt, LogHarvest, SuccessSample
from apps.jobs.models import Job
from apps.search.domain.indexing.new_logs import forget_words, queue_words

if TYPE_CHECKING:
    from apps.diagnosis.engine.evidence.novelty import Hashes

log = logging.getLogger(__name__)

#: Number of logs kept per kind, and the interval at which a full kind gets a new one.
LOGS = 40
RENEWED = timedelta(hours=1)
#: Maximum number of logs read in one run, per kind and in total, from this many of the newest jobs.
PER_KIND = 5
PER_RUN = 40
NEWEST = 2_000
#: Maximum number of novel lines that are ranked per log, and shown per job.
RANKED = 20
SHOWN = 3
_KEPT_SECONDS = 60.0
_KEPT = 8


class SampleKind(NamedTuple):
    """The successful jobs whose logs are compared with each other."""

    experiment_pk: int | None
    stage: str
    release: str


class _CachedBaseline(NamedTuple):
    """`read_at` is the monotonic clock, in seconds."""

    read_at: float
    baseline: Baseline | None


_baselines: OrderedDict[SampleKind, _CachedBaseline] = OrderedDict()


def sample_successes(*, at: datetime) -> int:
    """Sample the logs of newly completed jobs, kinds with few samples first; return their number.

    Safe to run twice.
    """
    done = Job.objects.filter(
        state=JobState.COMPLETED, ended_at__gte=at - timedelta(days=1), success_sample=None
    )
    fields = ("pk", "experiment", "stage", "release")
    pks_by_kind: dict[SampleKind, list[int]] = defaultdict(list)
    newest = done.exclude(stage="").order_by("-ended_at", "-pk")
    for pk, *kind in newest.values_list(*fields)[:NEWEST]:
        pks_by_kind[SampleKind(*kind)].append(pk)

    counts: Counter[SampleKind] = Counter()
    newest_samples: dict[SampleKind, datetime] = {}
    rows = SuccessSample.objects.values_list("experiment", "stage", "release")
    for *kind, count, sampled_at in rows.annotate(Count("pk"), Max("sampled_at")):
        counts[SampleKind(*kind)] = count
        newest_samples[SampleKind(*kind)] = sampled_at

    job_pks: list[int] = []
    for sample_kind in sorted(pks_by_kind, key=counts.__getitem__):
        most = PER_KIND
        if counts[sample_kind] >= LOGS:
            most = int(at - newest_samples[sample_kind] >= RENEWED)
        job_pks += pks_by_kind[sample_kind][:most]

    jobs = list(
        Job.objects.filter(pk__in=job_pks[:PER_RUN]).select_related("cluster", "experiment")
    )
    attempts = attempts_by_job(jobs)
    return sum(_sample(job, attempts[job.pk], at) for job in jobs)


def _sample(job: Job, attempts: Sequence[Job], at: datetime) -> bool:
    """Store templates and excerpts of one successful job; return whether they are new."""
    read = []
    for stream, path in locate_logs(job=job, at=at):
        if (block := read_end(job, attempts, stream, path)) is not None:
            read.append((path, block))
    if not read:
        return False
    hashes = sample_of(block for _, block in read)
    with transaction.atomic():
        compressed = zstandard.ZstdCompressor().compress(hashes.tobytes())
        kind = {"experiment_id": job.experiment_id, "stage": job.stage, "release": job.release}
        _, is_new = SuccessSample.objects.get_or_create(
            job=job, defaults=kind | {"sampled_at": at, "templates": compressed}
        )
        harvest, made = LogHarvest.objects.get_or_create(
            job=job, defaults={"state": HarvestState.DONE, "due_at": at, "harvested_at": at}
        )
        if made:
            excerpts = [excerpt_of(harvest, path, block) for path, block in read]
            LogExcerpt.objects.bulk_create(excerpts)
            queue_words([job.pk], at=at)
        _drop_oldest(kind, at=at)
    _baselines.clear()
    return is_new


def _drop_oldest(kind: Mapping[str, object], *, at: datetime) -> None:
    """Delete all but the newest samples of a kind, with their excerpts."""
    newest = SuccessSample.objects.filter(**kind).order_by("-sampled_at", "-pk")
    old = list(newest.values_list("pk", "job")[LOGS:])
    harvests = LogHarvest.objects.filter(job__in=[job for _, job in old], job__verdict=None)
    forget_words(harvests.values_list("job_id", flat=True), at=at)
    harvests.delete()
    SuccessSample.objects.filter(pk__in=[pk for pk, _ in old]).delete()


def baseline_for(job: Job) -> Baseline | None:
    """Return the templates of successful jobs of the same stage and release, else of any release.

    Return None if there are too few. Results are cached in this process for a minute, for a few
    kinds.
    """
    kind = SampleKind(job.experiment_id, job.stage, job.release)
    cached = _baselines.get(kind)
    now = time.monotonic()
    if cached is None or now - cached.read_at > _KEPT_SECONDS:
        cached = _CachedBaseline(now, _read_baseline(kind) if job.stage else None)
        _baselines[kind] = cached
    _baselines.move_to_end(kind)
    while len(_baselines) > _KEPT:
        _baselines.popitem(last=False)
    return cached.baseline


def _read_baseline(kind: SampleKind) -> Baseline | None:
    samples = SuccessSample.objects.filter(experiment=kind.experiment_pk, stage=kind.stage)
    templates = samples.order_by("-sampled_at", "-pk").values_list("templates", flat=True)
    same_release = templates.filter(release=kind.release)[:LOGS]
    baseline = baseline_of(kind.stage, [_hashes(compressed) for compressed in same_release])
    if baseline is None:
        any_release = [_hashes(compressed) for compressed in templates[:LOGS]]
        baseline = baseline_of(kind.stage, any_release)
    return baseline


def _hashes(compressed: bytes | memoryview) -> "Hashes":
    import numpy as np

    return np.frombuffer(zstandard.ZstdDecompressor().decompress(bytes(compressed)), np.uint64)


def with_novel_lines(diagnosis: Diagnosis, job: Job, blocks: Sequence[Block]) -> Diagnosis:
    """Add the novel lines of a job as reasons, unless a known error or fact explains the failure.

    They do not change the verdict. A line that only reports the failure, such as an exit status,
    comes last.
    """
    verdict = diagnosis.verdict
    explained = verdict.confidence is Confidence.HIGH or (
        verdict.cause and verdict.confidence is not Confidence.LOW
    )
    if (
        explained
        or job.state == JobState.COMPLETED
        or not blocks
        or (baseline := baseline_for(job)) is None
    ):
        return diagnosis
    lines: list[tuple[Stream, NovelLine]] = []
    for block in blocks:
        lines.extend((block.stream, line) for line in novel_lines(block, baseline, most=RANKED))
    consequences = set()
    for hit in diagnosis.hits:
        if hit.pattern.role is Role.CONSEQUENCE:
            consequences.add((hit.stream, hit.offset))
    lines.sort(
        key=lambda line: ((line[0], line[1].offset) in consequences, not line[1].names_error)
    )
    novel_line = lines[0][1].text if lines else ""
    novel_reasons = []
    for stream, line in lines[:SHOWN]:
        novel_reasons.append(
            Reason(ReasonKind.NOVEL, wording.novel_line(line, baseline), f"{stream}:{line.offset}")
        )
    reasons = tuple(novel_reasons)
    return replace(
        diagnosis,
        verdict=replace(verdict, reasons=(*verdict.reasons, *reasons), novel_line=novel_line),
    )
