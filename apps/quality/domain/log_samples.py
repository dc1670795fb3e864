"""Samples of the logs of completed jobs: a few per stage, each read once."""

from collections import Counter, defaultdict
from datetime import datetime
from itertools import chain

from apps.clusters.schedulers.base import JobState
from apps.diagnosis.domain.reading.log_scans import scan_logs
from apps.jobs.domain.records.conversion import clean_text
from apps.jobs.models import Job
from apps.production.models import Request
from apps.quality.checks.facts import LogSample
from apps.quality.models import LogLook

#: Upper limit for the sample of a stage.
MOST = 100


def sample_logs(*, request: Request, sample: int, at: datetime) -> int:
    """Read unread logs of the newest completed jobs of each stage, and return their number.

    It runs outside a transaction: each result is stored at once, so that a killed worker loses
    nothing.
    """
    count = 0
    for stage in request.stages.all():
        completed = Job.objects.filter(
            request=request, stage__iexact=stage.name, state=JobState.COMPLETED
        )
        for job in completed.select_related("cluster", "experiment", "quality_look").order_by(
            "-ended_at", "-pk"
        )[: min(sample, MOST)]:
            if not hasattr(job, "quality_look"):
                _read_log(job, request, at)
                count += 1
    return count


def _read_log(job: Job, request: Request, at: datetime) -> None:
    findings = scan_logs(job=job, at=at)
    patterns = list(dict.fromkeys(hit.pattern.id for hit in findings.hits))
    line = clean_text(findings.hits[0].text)[:500] if findings.hits else ""
    look = LogLook(
        job=job,
        request=request,
        stage=job.stage.casefold(),
        read=findings.read,
        patterns=patterns,
        line=line,
        at=at,
    )
    LogLook.objects.bulk_create([look], ignore_conflicts=True)


def samples_of(request: Request) -> dict[str, LogSample]:
    """Return the log sample of each stage, by its name in lower case."""
    looks: dict[str, list[LogLook]] = defaultdict(list)
    for look in LogLook.objects.filter(request=request).order_by("pk"):
        looks[look.stage].append(look)
    samples = {}
    for stage, of_stage in looks.items():
        bad = [look for look in of_stage if look.patterns]
        samples[stage] = LogSample(
            sampled=len(of_stage),
            read=sum(look.read for look in of_stage),
            bad=len(bad),
            patterns=Counter(chain.from_iterable(look.patterns for look in bad)),
            line=bad[0].line if bad else "",
        )
    return samples
