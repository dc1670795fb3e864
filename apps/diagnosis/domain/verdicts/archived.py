"""Verdicts and log ends of archived jobs."""

from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date

from apps.diagnosis.models import LogExcerpt, Verdict
from apps.diagnosis.wording import headline_of
from apps.jobs.domain.months.archived_records import MonthUnreadable, archived_rows
from apps.jobs.models import Job

#: Lines shown of the end of each log.
LINES = 200


@dataclass(frozen=True, slots=True)
class LogEnd:
    """The last lines of a log, as they were when its month was archived."""

    stream: str
    path: str
    lines: list[str]


@dataclass(frozen=True, slots=True)
class ArchivedDiagnosis:
    """What was known about the failure of an archived job."""

    verdict: Verdict | None
    headline: str
    logs: list[LogEnd]


def archived_verdicts(jobs: Sequence[Job]) -> list[Verdict]:
    """Return the verdicts on the archived ones of these jobs."""
    by_month: dict[date, list[int]] = defaultdict(list)
    for job in jobs:
        if job.archived_in is not None:
            by_month[job.archived_in].append(job.pk)
    verdicts = []
    for month, keys in by_month.items():
        # The jobs were just read from there: at worst, their verdicts are not shown.
        with suppress(MonthUnreadable):
            verdicts += archived_rows(Verdict.objects.filter(job__in=keys), month)
    return verdicts


def archived_diagnosis(job: Job) -> ArchivedDiagnosis:
    """Return what was known about an archived job."""
    verdict = next(iter(archived_verdicts([job])), None)
    headline = headline_of(verdict) if verdict else ""
    ends = []
    excerpts = LogExcerpt.objects.filter(harvest__job=job.pk).order_by("pk")
    with suppress(MonthUnreadable):
        for excerpt in archived_rows(excerpts, job.archived_in) if job.archived_in else ():
            lines = excerpt.data.decode(errors="replace").splitlines()
            ends.append(LogEnd(excerpt.stream, excerpt.path, lines[-LINES:]))
    return ArchivedDiagnosis(verdict, headline, ends)
