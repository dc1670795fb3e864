"""Store the templates of the lines in the logs of jobs."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice

from django.db import transaction
from django.db.models import Exists, OuterRef, QuerySet
from django.db.models.functions import Coalesce

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
    logs = _as_stored(logs)
    if not logs:
        return
    keys = _keys_of(logs)
    rows = []
    for log in logs:
        templates = {keys[log.job.experiment_id, signed(number)] for number in log.lines}
        rows.append(
            JobTemplates(
                job=log.job,
                ended_at=log.job.ended_at,
                failed=failed_of(log.job),
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


def _as_stored(logs: Sequence[LogTemplates]) -> list[LogTemplates]:
    """Return the logs with their jobs as they are now, locked: a log takes a while to read."""
    rows = Job.objects.filter(pk__in=[log.job.pk for log in logs]).order_by("pk")
    jobs = {job.pk: job for job in rows.select_for_update(no_key=True)}
    return [LogTemplates(jobs[log.job.pk], log.lines) for log in logs if log.job.pk in jobs]


def follow_experiments(jobs: QuerySet[Job], *, at: datetime) -> int:
    """Give the templates of jobs to the experiment that the jobs now belong to; return how many.

    Each batch is a transaction, so that templates are added in order.
    """
    moved = 0
    of_same = LineTemplate.objects.alias(owner=Coalesce("experiment_id", 0)).filter(
        pk=OuterRef("templates__0"), owner=Coalesce(OuterRef("job__experiment_id"), 0)
    )
    others = JobTemplates.objects.filter(~Exists(of_same), job__in=jobs).exclude(templates=[])
    rest = others.select_related("job").iterator(chunk_size=_BATCH)
    while rows := list(islice(rest, _BATCH)):
        keys = set()
        for row in rows:
            keys.update(row.templates)
        templates = LineTemplate.objects.in_bulk(keys)
        logs = []
        for row in rows:
            lines = {}
            for key in row.templates:
                if template := templates.get(key):
                    lines[template.unsigned_hash] = TemplateLine(
                        template.text, template.names_error
                    )
            logs.append(LogTemplates(row.job, lines))
        store_templates(logs, at=at)
        moved += len(logs)
    return moved


def signed(number: int) -> int:
    """Return 64 bits as PostgreSQL stores them."""
    return number - (1 << 64) if number >> 63 else number


def failed_of(job: Job) -> bool | None:
    """Return whether a job failed; None if it neither failed nor completed."""
    if job.state in FAILED_STATES:
        return True
    return False if job.state == JobState.COMPLETED else None


def _keys_of(logs: Iterable[LogTemplates]) -> dict[Key, int]:
    """Return the primary key of each template; create those that are new."""
    ends: dict[Key, datetime] = {}
    sites: dict[Key, dict[int, datetime]] = {}
    lines: dict[Key, TemplateLine] = {}
    for log in logs:
        job = log.job
        for number, line in log.lines.items():
            key = (job.experiment_id, signed(number))
            lines[key] = line
            ends[key] = min(ends.get(key, job.ended_at), job.ended_at)
            if job.site_id is not None:
                of_sites = sites.setdefault(key, {})
                of_sites[job.site_id] = min(of_sites.get(job.site_id, job.ended_at), job.ended_at)

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
                first_seen_at=ends[key],
                first_site_id=min(sites.get(key, ()), default=None),
            )
        )
    if new:
        LineTemplate.objects.bulk_create(new, ignore_conflicts=True)
        known |= _stored(lines.keys() - known.keys())
    _note_first_seen(known, ends, sites)
    return {key: template.pk for key, template in known.items()}


def _stored(keys: Iterable[Key]) -> dict[Key, LineTemplate]:
    """Return the stored templates among these keys."""
    requested = set(keys)
    rows = LineTemplate.objects.filter(hash__in={number for _, number in requested}).only(
        "experiment_id", "hash", "first_seen_at", "first_site_id", "spread_at"
    )
    stored = {}
    for row in rows:
        if (row.experiment_id, row.hash) in requested:
            stored[row.experiment_id, row.hash] = row
    return stored


def _note_first_seen(
    known: Mapping[Key, LineTemplate],
    ends: Mapping[Key, datetime],
    sites: Mapping[Key, Mapping[int, datetime]],
) -> None:
    """Note earlier first jobs, and which templates jobs of a second site wrote within the hour."""
    changed = {}
    for key, template in known.items():
        of_sites = sites.get(key, {})
        before = (template.first_seen_at, template.first_site_id, template.spread_at)
        template.first_seen_at = min(template.first_seen_at, ends[key])
        if template.first_site_id is None:
            template.first_site_id = min(of_sites, default=None)
        if template.spread_at is None:
            template.spread_at = _spread_at(template, of_sites)
        if before != (template.first_seen_at, template.first_site_id, template.spread_at):
            changed[template.pk] = template
    if not changed:
        return
    rows = LineTemplate.objects.filter(pk__in=changed).order_by("pk")
    # Not against the foreign keys of totals, which lock templates in any order.
    locked = list(rows.select_for_update(no_key=True).values_list("pk", flat=True))
    LineTemplate.objects.bulk_update(
        [changed[pk] for pk in locked], ["first_seen_at", "first_site", "spread_at"]
    )


def _spread_at(template: LineTemplate, sites: Mapping[int, datetime]) -> datetime | None:
    """Return when a job of another site than the first wrote the line, if within the hour."""
    for site, ended_at in sorted(sites.items()):
        is_soon = abs(ended_at - template.first_seen_at) <= SPREAD_WITHIN
        if site != template.first_site_id and is_soon:
            return ended_at
    return None
