"""Count the jobs exposed to an incident, and the usual failures before it, with one query each."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

from django.db import connection

from apps.clusters.models import Cluster
from apps.diagnosis.enums import BaselineScope
from apps.diagnosis.models import Impact, ImpactGroup
from apps.jobs.enums import FAILED_STATES
from apps.statusboard.domain.states.timeline import BEGINNING, FOREVER, Span
from apps.statusboard.enums import State
from apps.statusboard.models import Incident, StateInterval

#: The baseline is this period before the incident.
BASELINE = timedelta(days=3)
#: Minimum number of jobs for a baseline.
FEWEST = 30
#: Jobs that ended later than this after the end of an incident are ignored.
LONGEST_JOB = timedelta(days=14)
#: Failed jobs over time: maximum number of bins, each of one of the lengths below.
MOST_BINS = 60
#: Of a longer incident, only the end is shown.
LONGEST_SHOWN = timedelta(days=90)
BIN_SECONDS = (60, 300, 600, 900, 1800, 3600, 7200, 14_400, 43_200, 86_400, 604_800)

_FAILED = sorted(state.value for state in FAILED_STATES)

#: Jobs that need a service: their cluster provides it, or their stage (as proven) requires it.
_NEEDS = """
    (j.cluster_id = ANY(%(clusters)s) OR (j.request_key, j.experiment_id, j.stage) IN (
        SELECT r.key, r.experiment_id, s.name
        FROM production_stage s
        JOIN production_request r ON r.id = s.request_id
        JOIN production_stage_services x ON x.stage_id = s.id
        WHERE x.service_id = %(service)s))
"""

# A job of zero length counts as the moment of its start, as in `statusboard.domain.overlaps`.
_EXPOSED_JOBS = f"""
    WITH near AS (
        SELECT j.id, j.experiment_id, j.request_key, j.stage, j.site_id,
               j.started_at, j.ended_at, j.wall_seconds * j.cpus AS core_seconds,
               j.state = ANY(%(failed)s) AS is_failed,
               j.started_at >= %(start)s AND j.ended_at <= %(known_end)s AS is_contained,
               CASE WHEN j.started_at = j.ended_at
                    THEN j.started_at >= %(start)s AND j.started_at < %(known_end)s
                    ELSE j.started_at < %(known_end)s AND j.ended_at > %(start)s END AS met,
               (j.started_at = %(end)s AND %(known_end)s = %(end)s)
                   OR (j.ended_at = %(start)s AND j.started_at < %(start)s) AS touched
        FROM jobs_job j
        WHERE j.ended_at >= %(start)s AND j.ended_at <= %(latest)s
          AND j.started_at <= %(end)s AND {_NEEDS}
    ), judged AS (
        SELECT near.*, met AND is_failed AS hit,
               met AND is_failed AND v.verdict = 'service' AND v.service = %(slug)s AS is_confirmed,
               v.later_state, v.later_attempt
        FROM near
        LEFT JOIN diagnosis_verdict v ON v.job_id = near.id AND near.met AND near.is_failed
    )
"""
_CONFIRMED_JOBS = f"{_EXPOSED_JOBS} SELECT id FROM judged WHERE is_confirmed"
_COUNTS_BY_GROUP = f"""{_EXPOSED_JOBS}
    SELECT experiment_id, request_key, stage, site_id,
           count(*) FILTER (WHERE met AND is_contained) AS contained,
           count(*) FILTER (WHERE met AND NOT is_contained AND started_at <= %(start)s
                                  AND ended_at >= %(known_end)s) AS containing,
           count(*) FILTER (WHERE met) AS exposed,
           count(*) FILTER (WHERE touched AND NOT met) AS touching,
           count(*) FILTER (WHERE NOT met AND started_at >= %(known_end)s
                                  AND started_at < %(end)s) AS unknown,
           count(*) FILTER (WHERE hit) AS failed,
           coalesce(sum(core_seconds) FILTER (WHERE hit), 0) AS failed_core_seconds,
           count(*) FILTER (WHERE is_confirmed) AS confirmed,
           coalesce(sum(core_seconds) FILTER (WHERE is_confirmed), 0) AS confirmed_core_seconds,
           count(*) FILTER (WHERE is_confirmed AND later_state = 'completed') AS succeeded,
           count(*) FILTER (WHERE is_confirmed AND later_state NOT IN ('', 'completed')) AS retried,
           coalesce(sum(core_seconds) FILTER (WHERE is_confirmed AND later_state = ''), 0)
               AS eligible_core_seconds
    FROM judged GROUP BY experiment_id, request_key, stage, site_id
"""

# Jobs of a submission fail together: the variance of k failures among n jobs follows from the sum
# of k²/n over submissions.
_USUAL_FAILURES = f"""
    WITH submissions AS (
        SELECT j.experiment_id, j.request_key, j.stage, j.site_id, count(*) AS n,
               count(*) FILTER (WHERE j.state = ANY(%(failed)s)) AS k,
               sum(j.wall_seconds * j.cpus) AS core_seconds
        FROM jobs_job j
        WHERE j.ended_at >= %(since)s AND j.ended_at < %(start)s AND j.started_at IS NOT NULL
          AND NOT (tstzrange(j.started_at, j.ended_at) && %(outages)s::tstzmultirange) AND {_NEEDS}
        GROUP BY j.experiment_id, j.request_key, j.stage, j.site_id, j.cluster_id, j.spool_id
    )
    SELECT experiment_id, request_key, stage, site_id,
           sum(n), sum(k), count(*), sum(k * k / n::float), sum(core_seconds)
    FROM submissions GROUP BY experiment_id, request_key, stage, site_id
"""

_BINS = f"""
    SELECT j.experiment_id, floor(extract(epoch FROM j.ended_at - %(since)s) / %(width)s)::int,
           count(*)
    FROM jobs_job j
    WHERE j.ended_at >= %(since)s AND j.ended_at < %(until)s AND j.state = ANY(%(failed)s)
      AND j.started_at IS NOT NULL AND {_NEEDS}
    GROUP BY 1, 2
"""


class _UsualRow(NamedTuple):
    """Jobs of a stage at a site before the incident; a row of `_USUAL_FAILURES`."""

    experiment_pk: int | None
    request_key: str
    stage: str
    site_pk: int | None
    jobs: Decimal
    failed: Decimal
    submissions: int
    square_sum: float
    core_seconds: Decimal


@dataclass
class Usual:
    """Jobs before the incident; `square_sum` is the sum of k²/n over submissions."""

    jobs: int = 0
    failed: int = 0
    submissions: int = 0
    square_sum: float = 0

    def add(self, row: _UsualRow) -> None:
        self.jobs += int(row.jobs)
        self.failed += int(row.failed)
        self.submissions += row.submissions
        self.square_sum += row.square_sum

    @property
    def clumping(self) -> float:
        """Return Pearson's overdispersion of failures by submission, at least 1."""
        rate = self.failed / self.jobs if self.jobs else 0
        if self.submissions < 2 or not 0 < rate < 1:
            return 1.0
        spread = self.square_sum - self.failed * rate
        return max(1.0, spread / (rate * (1 - rate)) / (self.submissions - 1))


class _Population(NamedTuple):
    """The jobs that a baseline is counted from: of an experiment, a stage or a site."""

    scope: BaselineScope
    experiment_pk: int | None
    stage: str = ""
    site_pk: int | None = None


def incident_span(incident: Incident) -> tuple[Span, datetime]:
    """Return the span of an incident with those merged into it, and the end of its known state."""
    members = [incident, *incident.merged.all()]
    start = max(min(member.started_at for member in members), BEGINNING)
    end = max(member.ended_at or FOREVER for member in members)
    known_until = max(
        min(member.stale_at or FOREVER, member.ended_at or FOREVER) for member in members
    )
    return Span(start, end), max(known_until, start)


def count_groups(incident: Incident) -> list[ImpactGroup]:
    """Return the unsaved groups of jobs exposed to an incident, each with its baseline."""
    values = _exposure_parameters(incident)
    start = values["start"]
    if values["end"] <= start:
        return []
    rows = _rows_as_dicts(_COUNTS_BY_GROUP, values)
    if not rows:
        return []
    values |= {"since": start - BASELINE, "outages": _outages(incident, start)}
    usual_rows = [_UsualRow(*row) for row in _rows(_USUAL_FAILURES, values)]
    baselines = _baselines(usual_rows)
    cores = _mean_cores(usual_rows)
    groups = [_make_group(counts, baselines, cores) for counts in rows]
    return [group for group in groups if group is not None]


def confirmed_jobs(incident: Incident) -> list[int]:
    """Return the primary keys of jobs that, by their verdict, failed because of an incident."""
    values = _exposure_parameters(incident)
    if values["end"] <= values["start"]:
        return []
    return [pk for (pk,) in _rows(_CONFIRMED_JOBS, values)]


def _exposure_parameters(incident: Incident) -> dict[str, Any]:
    """Return the query parameters that select the jobs exposed to an incident."""
    span, known_end = incident_span(incident)
    end = span.ended_at or FOREVER
    return {
        **_service_parameters(incident),
        "slug": incident.service.slug,
        "start": span.started_at,
        "end": end,
        "known_end": known_end,
        "latest": FOREVER if end == FOREVER else end + LONGEST_JOB,
    }


def _make_group(
    counts: dict[str, Any],
    baselines: Mapping[_Population, Usual],
    cores: Mapping[tuple[int | None, str, str], float],
) -> ImpactGroup | None:
    """Return a group with its counts and its narrowest baseline; None if it counts nothing."""
    exposed = counts.pop("exposed")
    group = ImpactGroup(**counts, partial=exposed - counts["contained"] - counts["containing"])
    if not exposed and not group.touching and not group.unknown:
        return None
    group.cores = cores.get((group.experiment_id, group.request_key, group.stage), 0)
    for population in _populations(group.experiment_id, group.stage, group.site_id):
        usual = baselines.get(population)
        if usual and usual.jobs >= FEWEST:
            group.baseline = population.scope
            group.clumping = usual.clumping
            group.baseline_jobs = usual.jobs
            group.baseline_failed = usual.failed
            break
    return group


def _populations(
    experiment_pk: int | None, stage: str, site_pk: int | None
) -> tuple[_Population, ...]:
    """Return the populations that jobs of a stage at a site belong to, the narrowest first."""
    return (
        _Population(BaselineScope.SITE, experiment_pk, stage, site_pk),
        _Population(BaselineScope.STAGE, experiment_pk, stage),
        _Population(BaselineScope.EXPERIMENT, experiment_pk),
    )


def _baselines(rows: Iterable[_UsualRow]) -> dict[_Population, Usual]:
    """Sum the usual jobs by population."""
    baselines: dict[_Population, Usual] = {}
    for row in rows:
        for population in _populations(row.experiment_pk, row.stage, row.site_pk):
            baselines.setdefault(population, Usual()).add(row)
    return baselines


def _mean_cores(rows: Iterable[_UsualRow]) -> dict[tuple[int | None, str, str], float]:
    """Return the mean number of cores in use by experiment, request key and stage."""
    cores: dict[tuple[int | None, str, str], float] = {}
    for row in rows:
        key = (row.experiment_pk, row.request_key, row.stage)
        mean = float(row.core_seconds) / BASELINE.total_seconds()
        cores[key] = cores.get(key, 0) + mean
    return cores


def _outages(incident: Incident, start: datetime) -> str:
    """Return the service's other outages before the incident, as a multirange literal."""
    intervals = StateInterval.objects.filter(
        service=incident.service_id, state__in=(State.DOWN, State.DEGRADED)
    )
    spans = intervals.overlapping(start - BASELINE, start).values_list("started_at", "ended_at")
    ranges = []
    for started_at, ended_at in spans:
        end = ended_at.isoformat() if ended_at else ""
        ranges.append(f"[{started_at.isoformat()},{end})")
    return f"{{{','.join(ranges)}}}"


def count_bins(incident: Incident, at: datetime) -> Impact:
    """Return an unsaved impact with the failed jobs over time.

    The time starts before the incident and ends after it.
    """
    span, _ = incident_span(incident)
    end = min(span.ended_at or at, at)
    start = max(span.started_at, end - LONGEST_SHOWN)
    length = max(end - start, timedelta(minutes=10))
    since = start - length / 2
    until = min(max(end, start) + length / 4, at)

    seconds = max((until - since).total_seconds(), 60)
    width = next((width for width in BIN_SECONDS if seconds / width <= MOST_BINS), BIN_SECONDS[-1])
    first = since - timedelta(seconds=since.timestamp() % width)
    number = int((until - first).total_seconds() // width) + 1

    bins: dict[str, list[int]] = {}
    values = {**_service_parameters(incident), "since": first, "until": until, "width": width}
    for experiment_pk, position, jobs in _rows(_BINS, values):
        bins.setdefault(str(experiment_pk or 0), [0] * number)[position] += jobs
    return Impact(incident=incident, counted_at=at, bins_from=first, bin_seconds=width, bins=bins)


def _service_parameters(incident: Incident) -> dict[str, Any]:
    """Return the query parameters that select the jobs that need the service of an incident."""
    clusters = Cluster.objects.filter(service=incident.service_id).values_list("pk", flat=True)
    return {"service": incident.service_id, "clusters": list(clusters), "failed": _FAILED}


def _rows(sql: str, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, values)
        return list(cursor.fetchall())


def _rows_as_dicts(sql: str, values: Mapping[str, Any]) -> list[dict[str, Any]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, values)
        names = [column.name for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
