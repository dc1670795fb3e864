"""Store the templates of the lines in the logs of jobs."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice

from django.db import connection, transaction
from django.db.models import Exists, OuterRef, QuerySet
from django.db.models.functions import Coalesce

from apps.clusters.schedulers.base import JobState
from apps.core.domain.bulk import rows_where_any
from apps.jobs.domain.records.conversion import hour_of
from apps.jobs.domain.totals.rollups import mark_dirty
from apps.jobs.enums import FAILED_STATES, Counted
from apps.jobs.models import Job
from apps.search.domain.engine.chosen import engine_in_use
from apps.search.domain.indexing.new_logs import follow_corrected
from apps.search.domain.line_watches import notify_watchers
from apps.search.models import LONGEST_TEXT, JobTemplates, LineTemplate, signed

#: A template has spread if a job of a second site writes it within this time.
SPREAD_WITHIN = timedelta(hours=1)
_BATCH = 200

#: Primary keys of templates by experiment and hash.
Keys = dict[int | None, dict[int, int]]
_UPDATE = """
UPDATE search_linetemplate template SET first_seen_at = noted.first_seen_at,
    first_site_id = noted.first_site_id, spread_at = noted.spread_at
FROM unnest(%s::int[], %s::timestamptz[], %s::bigint[], %s::timestamptz[])
    noted (id, first_seen_at, first_site_id, spread_at)
WHERE template.id = noted.id
"""


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


@dataclass(frozen=True, slots=True)
class StoredLog:
    """The templates of the logs of a job, and the job as it is stored."""

    job_pk: int
    experiment_id: int | None
    site_id: int | None
    ended_at: datetime
    state: str
    lines: Mapping[int, TemplateLine]


@transaction.atomic
def store_templates(logs: Sequence[LogTemplates], *, at: datetime) -> None:
    """Replace the templates of these jobs, in a constant number of queries.

    The hours of the jobs are then recounted, and users who watch a line are notified. Safe to
    repeat.
    """
    stored_logs = _as_stored(logs)
    if not stored_logs:
        return
    keys = _ensure_templates(stored_logs)
    rows = []
    for log in stored_logs:
        pk_by_hash = keys[log.experiment_id]
        rows.append(
            JobTemplates(
                job_id=log.job_pk,
                ended_at=log.ended_at,
                failed=failed_in(log.state),
                templates=sorted(map(pk_by_hash.__getitem__, log.lines)),
                read_at=at,
            )
        )
    before = JobTemplates.objects.filter(job__in=[log.job_pk for log in stored_logs])
    ends = list(before.values_list("ended_at", flat=True)) + [row.ended_at for row in rows]
    JobTemplates.objects.bulk_create(
        rows,
        update_conflicts=True,
        unique_fields=["job"],
        update_fields=["ended_at", "failed", "templates", "read_at"],
    )
    mark_dirty(map(hour_of, ends), Counted.LINES)
    notify_watchers(stored_logs, keys, at=at)


def _as_stored(logs: Sequence[LogTemplates]) -> list[StoredLog]:
    """Return the logs with their jobs as they are now, locked, by key: a log takes long to read."""
    lines = {log.job.pk: log.lines for log in logs}
    jobs = Job.objects.filter(pk__in=lines).order_by("pk").select_for_update(no_key=True)
    stored_logs = []
    for row in jobs.values_list("pk", "experiment", "site", "ended_at", "state"):
        stored_logs.append(StoredLog(*row, lines[row[0]]))
    return stored_logs


def follow_experiments(jobs: QuerySet[Job], *, at: datetime) -> int:
    """Give the templates of jobs to the experiment that the jobs now belong to; return how many.

    Each batch is a transaction, so that templates are added in order.
    """
    moved = 0
    of_same = LineTemplate.objects.alias(owner=Coalesce("experiment_id", 0)).filter(
        pk=OuterRef("templates__0"), owner=Coalesce(OuterRef("job__experiment_id"), 0)
    )
    others = JobTemplates.objects.filter(~Exists(of_same), job__in=jobs).exclude(templates=[])
    rows_to_move = others.select_related("job").iterator(chunk_size=_BATCH)
    while rows := list(islice(rows_to_move, _BATCH)):
        logs = _read_log_templates(rows)
        store_templates(logs, at=at)
        if engine_in_use().has_experiments:
            follow_corrected([job_templates.job_id for job_templates in rows], at=at)
        moved += len(logs)
    return moved


def _read_log_templates(stored: Sequence[JobTemplates]) -> list[LogTemplates]:
    """Return the stored templates of jobs, as they are for `store_templates`. One query."""
    keys = set()
    for job_templates in stored:
        keys.update(job_templates.templates)
    templates = LineTemplate.objects.in_bulk(keys)
    logs = []
    for job_templates in stored:
        lines = {}
        for key in job_templates.templates:
            if template := templates.get(key):
                line = TemplateLine(template.text, template.names_error)
                lines[template.unsigned_hash] = line
        logs.append(LogTemplates(job_templates.job, lines))
    return logs


def failed_in(state: str) -> bool | None:
    """Return whether a job in this state failed; None if it neither failed nor completed."""
    if state in FAILED_STATES:
        return True
    return False if state == JobState.COMPLETED else None


class _Sightings:
    """When the jobs of a batch first wrote each template, in each experiment and at each site.

    Dictionaries are merged whole, the last job first, instead of looking at each line: a batch has
    thousands of lines, most of them often.
    """

    def __init__(self, logs: Sequence[StoredLog]) -> None:
        self.lines: dict[int | None, dict[int, TemplateLine]] = {}
        self.ends: dict[int | None, dict[int, datetime]] = {}
        self._by_site: dict[int | None, dict[int, dict[int, datetime]]] = {}
        self.earliest = min(log.ended_at for log in logs)
        for log in sorted(logs, key=lambda log: log.ended_at, reverse=True):
            ends = dict.fromkeys(log.lines, log.ended_at)
            self.lines.setdefault(log.experiment_id, {}).update(log.lines)
            self.ends.setdefault(log.experiment_id, {}).update(ends)
            if log.site_id is not None:
                of_sites = self._by_site.setdefault(log.experiment_id, {})
                of_sites.setdefault(log.site_id, {}).update(ends)

    @property
    def have_sites(self) -> bool:
        """Return whether the site of any job is known."""
        return bool(self._by_site)

    def sites_of(self, experiment_id: int | None, line_hash: int) -> dict[int, datetime]:
        """Return when the first job of each site that wrote the template ended, by site."""
        ends = {}
        for site_id, of_site in sorted(self._by_site.get(experiment_id, {}).items()):
            if line_hash in of_site:
                ends[site_id] = of_site[line_hash]
        return ends


def _ensure_templates(logs: Sequence[StoredLog]) -> Keys:
    """Create the templates that are new; return the primary keys of all."""
    sightings = _Sightings(logs)
    line_hashes: set[int] = set()
    for lines in sightings.lines.values():
        line_hashes.update(lines)
    keys: Keys = {experiment_id: {} for experiment_id in sightings.lines}
    candidates = _read_keys(line_hashes, keys, sightings)
    if new := _new_templates(keys, sightings):
        LineTemplate.objects.bulk_create(new, ignore_conflicts=True)
        candidates += _read_keys({template.unsigned_hash for template in new}, keys, sightings)
    _store_first_seen(candidates, sightings)
    return keys


def _read_keys(line_hashes: Collection[int], keys: Keys, sightings: _Sightings) -> list[int]:
    """Add the primary keys of stored templates; return those whose first sightings may change.

    Most do not: the first job that wrote them ended long before.
    """
    columns = ("id", "experiment_id", "hash", "first_seen_at", "first_site_id")
    stored_hashes = [signed(line_hash) for line_hash in line_hashes]
    rows = rows_where_any(LineTemplate, columns, "hash", stored_hashes)
    lately = sightings.earliest - SPREAD_WITHIN
    have_sites = sightings.have_sites
    candidates = []
    for key, experiment_id, stored_hash, first_seen_at, first_site_id in rows:
        line_hash = stored_hash % (1 << 64)
        if line_hash not in sightings.lines.get(experiment_id, ()):
            continue
        keys[experiment_id][line_hash] = key
        if first_seen_at >= lately or (first_site_id is None and have_sites):
            candidates.append(key)
    return candidates


def _new_templates(keys: Keys, sightings: _Sightings) -> list[LineTemplate]:
    """Return the templates without a key.

    In order: two workers that add the same templates wait for each other, and never deadlock.
    """
    new = []
    for experiment_id, lines in sightings.lines.items():
        for line_hash in lines.keys() - keys[experiment_id].keys():
            new.append(
                LineTemplate(
                    experiment_id=experiment_id,
                    hash=signed(line_hash),
                    text=lines[line_hash].text[:LONGEST_TEXT],
                    names_error=lines[line_hash].names_error,
                    first_seen_at=sightings.ends[experiment_id][line_hash],
                    first_site_id=min(sightings.sites_of(experiment_id, line_hash), default=None),
                )
            )
    return sorted(new, key=lambda template: (template.hash, template.experiment_id or 0))


def _store_first_seen(candidates: Sequence[int], sightings: _Sightings) -> None:
    """Store earlier first jobs, and which templates jobs of a second site wrote within the hour."""
    if not candidates:
        return
    templates = LineTemplate.objects.filter(pk__in=candidates).order_by("pk")
    keys = [template.pk for template in templates if _note_first_seen(template, sightings)]
    if not keys:
        return
    # Read again under a lock: another worker may have stored an earlier job meanwhile. The lock
    # does not conflict with the foreign keys of totals, which lock templates in any order.
    changed = []
    for template in templates.filter(pk__in=keys).select_for_update(no_key=True):
        if _note_first_seen(template, sightings):
            changed.append(template)
    with connection.cursor() as cursor:
        cursor.execute(
            _UPDATE,
            [
                [template.pk for template in changed],
                [template.first_seen_at for template in changed],
                [template.first_site_id for template in changed],
                [template.spread_at for template in changed],
            ],
        )


def _note_first_seen(template: LineTemplate, sightings: _Sightings) -> bool:
    """Set the fields of a template that the sightings change, unsaved; return whether any did."""
    line_hash = template.unsigned_hash
    sites = sightings.sites_of(template.experiment_id, line_hash)
    before = (template.first_seen_at, template.first_site_id, template.spread_at)
    ended_at = sightings.ends[template.experiment_id][line_hash]
    template.first_seen_at = min(template.first_seen_at, ended_at)
    if template.first_site_id is None:
        template.first_site_id = min(sites, default=None)
    if template.spread_at is None:
        template.spread_at = _spread_at(template, sites)
    return before != (template.first_seen_at, template.first_site_id, template.spread_at)


def _spread_at(template: LineTemplate, sites: Mapping[int, datetime]) -> datetime | None:
    """Return when a job of another site than the first wrote the line, if within the hour."""
    for site_id, ended_at in sorted(sites.items()):
        is_soon = abs(ended_at - template.first_seen_at) <= SPREAD_WITHIN
        if site_id != template.first_site_id and is_soon:
            return ended_at
    return None
