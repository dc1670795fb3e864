"""Looking at the logs of some jobs that ended well, a few of each stage, each once."""

from collections import Counter
from datetime import datetime

from apps.clusters.schedulers.base import JobState
from apps.diagnosis.domain.log_scans import scan_logs
from apps.jobs.domain.records import clean_text
from apps.jobs.models import Job
from apps.production.models import Request
from apps.quality.checks.facts import LogSample
from apps.quality.models import LogLook

#: Whatever an admin says, no more logs of a stage are read.
MOST = 100


def look_at_logs(*, request: Request, sample: int, at: datetime) -> int:
    """Read the logs of the newest completed jobs of each stage that were not read yet; return how many.

    Not in a transaction: each log is kept as it is read, so that a killed worker's successor goes on.
    """
    looked = 0
    for stage in request.stages.all():
        completed = Job.objects.filter(request=request, stage__iexact=stage.name, state=JobState.COMPLETED)
        for job in completed.select_related("cluster", "experiment", "quality_look").order_by("-ended_at", "-pk")[
            : min(sample, MOST)
        ]:
            if not hasattr(job, "quality_look"):
                _look(job, request, at)
                looked += 1
    return looked


def _look(job: Job, request: Request, at: datetime) -> None:
    found = scan_logs(job=job, at=at)
    patterns = list(dict.fromkeys(hit.pattern.id for hit in found.hits))
    line = clean_text(found.hits[0].text)[:500] if found.hits else ""
    look = LogLook(
        job=job, request=request, stage=job.stage.casefold(), read=found.read, patterns=patterns, line=line, at=at
    )
    LogLook.objects.bulk_create([look], ignore_conflicts=True)


def samples_of(request: Request) -> dict[str, LogSample]:
    """Return what the logs of each stage showed, by its name in small letters."""
    found: dict[str, list[LogLook]] = {}
    for look in LogLook.objects.filter(request=request).order_by("pk"):
        found.setdefault(look.stage, []).append(look)
    return {stage: _sample(looks) for stage, looks in found.items()}


def _sample(looks: list[LogLook]) -> LogSample:
    bad = [look for look in looks if look.patterns]
    return LogSample(
        asked=len(looks),
        read=sum(look.read for look in looks),
        bad=len(bad),
        patterns=Counter(pattern for look in bad for pattern in look.patterns),
        line=bad[0].line if bad else "",
    )
