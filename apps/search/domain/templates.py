"""Store the templates of the lines in the logs of jobs."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice

from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet

from apps.clusters.schedulers.base import JobState
from apps.jobs.domain.records.conversion import hour_of
from apps.jobs.domain.totals.rollups import mark_dirty
from apps.jobs.enums import FAILED_STATES, Counted
from apps.jobs.models import Job
from apps.search.models import LONGEST_TEXT, JobTemplates, LineTemplate

#: A template has spread if a job of a second site writes it within this time.
SPREAD_WITHIN = timedelta(hours=1)
_BATCH = 200

#: An experiment and the hash of a template.
Key = tuple[int | None, int]


@dataclass(frozen=True, slots=True)
class TemplateLine:
    """The text of a template, and whether it names an error."""

    text: str
    names_error: bool


@dataclass(frozen=True, slots=True)
class LogTemplates:
    """The templates of the logs of an ended job, by hash (64 bits, unsigned)."""

    job: Job
    lines: Mapping[int, TemplateLine]


@transaction.atomic
def store_templates(logs: Sequence[LogTemplates], *, at: datetime) -> None:
    """Replace the templates of these jobs, in a constant number of queries.

    The hours of the jobs are counted anew afterwards. Safe to repeat.
    """
    logs = [log for log in logs if log.job.ended_at is not None]
    if not logs:
        return
    keys = _keys_of(logs, at)
    rows = []
    for log in logs:
        templates = {keys[log.job.experiment_id, signed(number)] for number in log.lines}
        rows.append(
            JobTemplates(
                job=log.job,
                ended_at=log.job.ended_at,
                failed=_failed(log.job),
                templates=sorted(templates),
                read_at=at,
            )
        )
    before = JobTemplates.objects.filter(job__in=[log.job for log in logs])
    ends = list(before.values_list("ended_at", flat=True)) + [row.ended_at for row in rows]
    JobTemplates.objects.bulk_create(
        sorted(rows, key=lambda row: row.job_id),
        update_conflicts=True,
        unique_fields=["job"],
        update_fields=["ended_at", "failed", "templates", "read_at"],
    )
    mark_dirty(map(hour_of, ends), Counted.LINES)


def follow_experiments(jobs: QuerySet[Job], *, at: datetime) -> int:
    """Give the templates of jobs to the experiment that the jobs now belong to; return how many."""
    moved = 0
    of_same = LineTemplate.objects.filter(
        pk=OuterRef("templates__0"), experiment=OuterRef("job__experiment")
    )
    read = JobTemplates.objects.filter(~Exists(of_same), job__in=jobs).select_related("job")
    rest = read.iterator(chunk_size=_BATCH)
    while rows := list(islice(rest, _BATCH)):
        keys = set()
        for row in rows:
            keys.update(row.templates)
        templates = LineTemplate.objects.in_bulk(keys)
        logs = []
        for row in rows:
            lines = {}
            for key in row.templates:
                template = templates[key]
                if template.experiment_id != row.job.experiment_id:
                    lines[template.hash % (1 << 64)] = TemplateLine(
                        template.text, template.names_error
                    )
            if lines:
                logs.append(LogTemplates(row.job, lines))
        store_templates(logs, at=at)
        moved += len(logs)
    return moved


def signed(number: int) -> int:
    """Return 64 bits as PostgreSQL stores them."""
    return number - (1 << 64) if number >> 63 else number


def _failed(job: Job) -> bool | None:
    if job.state in FAILED_STATES:
        return True
    return False if job.state == JobState.COMPLETED else None


def _keys_of(logs: Iterable[LogTemplates], at: datetime) -> dict[Key, int]:
    """Return the primary key of each template; create those that are new."""
    sites: dict[Key, set[int | None]] = {}
    lines: dict[Key, TemplateLine] = {}
    for log in logs:
        for number, line in log.lines.items():
            key = (log.job.experiment_id, signed(number))
            lines[key] = line
            sites.setdefault(key, set()).add(log.job.site_id)

    known = _stored(lines)
    new = []
    # In order: two workers that add the same templates wait for each other, and never deadlock.
    for key in sorted(lines.keys() - known.keys(), key=lambda key: (key[1], key[0] or 0)):
        experiment, number = key
        new.append(
            LineTemplate(
                experiment_id=experiment,
                hash=number,
                text=lines[key].text[:LONGEST_TEXT],
                names_error=lines[key].names_error,
                first_read_at=at,
                first_site_id=next(iter(sites[key])),
            )
        )
    if new:
        LineTemplate.objects.bulk_create(new, ignore_conflicts=True)
        known |= _stored(lines.keys() - known.keys())
    _note_spread(known, sites, at)
    return {key: template.pk for key, template in known.items()}


def _stored(keys: Iterable[Key]) -> dict[Key, LineTemplate]:
    """Return the stored templates among these keys."""
    requested = set(keys)
    rows = LineTemplate.objects.filter(hash__in={number for _, number in requested}).only(
        "experiment_id", "hash", "first_read_at", "first_site_id", "spread_at"
    )
    stored = {}
    for row in rows:
        if (row.experiment_id, row.hash) in requested:
            stored[row.experiment_id, row.hash] = row
    return stored


def _note_spread(
    known: Mapping[Key, LineTemplate], sites: Mapping[Key, set[int | None]], at: datetime
) -> None:
    """Note which new templates jobs of a second site wrote within the hour."""
    spread = []
    for key, template in known.items():
        is_new = template.spread_at is None and at - template.first_read_at <= SPREAD_WITHIN
        if is_new and sites[key] - {template.first_site_id, None}:
            spread.append(template.pk)
    if not spread:
        return
    unnoted = LineTemplate.objects.filter(Q(pk__in=spread), spread_at=None)
    locked = list(unnoted.order_by("pk").select_for_update().values_list("pk", flat=True))
    LineTemplate.objects.filter(pk__in=locked).update(spread_at=at)
