"""Count the jobs exposed to an incident, and the usual failures before it, with one query each."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

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
_MET = f"""
    WITH near AS (
        SELECT j.id, j.experiment_id, j.request_key, j.stage, j.site_id,
               j.started_at AS a, j.ended_at AS b,
               j.wall_seconds * j.cpus AS core, j.state = ANY(%(failed)s) AS is_failed,
               CASE WHEN j.started_at = j.ended_at
                    THEN j.started_at >= %(start)s AND j.started_at < %(known_end)s
                    ELSE j.started_at < %(known_end)s AND j.ended_at > %(start)s END AS met,
               (j.started_at = %(end)s AND %(known_end)s = %(end)s)
                   OR (j.ended_at = %(start)s AND j.started_at < %(start)s) AS touched
        FROM jobs_job j
        WHERE j.ended_at >= %(start)s AND j.ended_at <= %(latest)s
          AND j.started_at <= %(end)s AND {_NEEDS}
    ), found AS (
        SELECT near.*, met AND is_failed AS hit,
               met AND is_failed AND v.verdict = 'service' AND v.service = %(slug)s AS is_confirmed,
               v.later_state, v.later_attempt
        FROM near
        LEFT JOIN diagnosis_verdict v ON v.job_id = near.id AND near.met AND near.is_failed
    )
"""
_CONFIRMED = f"{_MET} SELECT id FROM found WHERE is_confirmed"
_EXPOSED = f"""{_MET}
    SELECT experiment_id, request_key, stage, site_id,
           count(*) FILTER (WHERE met AND a >= %(start)s AND b <= %(known_end)s) AS contained,
           count(*) FILTER (WHERE met AND a <= %(start)s AND b >= %(known_end)s
                                  AND NOT (a >= %(start)s AND b <= %(known_end)s)) AS containing,
           count(*) FILTER (WHERE met) AS exposed,
           count(*) FILTER (WHERE touched AND NOT met) AS touching,
           count(*) FILTER (WHERE NOT met AND a >= %(known_end)s AND a < %(end)s) AS unknown,
           count(*) FILTER (WHERE hit) AS failed,
           coalesce(sum(core) FILTER (WHERE hit), 0) AS failed_core_seconds,
           count(*) FILTER (WHERE is_confirmed) AS confirmed,
           coalesce(sum(core) FILTER (WHERE is_confirmed), 0) AS confirmed_core_seconds,
           count(*) FILTER (WHERE is_confirmed AND later_state = 'completed') AS succeeded,
           count(*) FILTER (WHERE is_confirmed AND later_state NOT IN ('', 'completed')) AS retried,
           coalesce(sum(core) FILTER (WHERE is_confirmed AND later_state = ''), 0)
               AS eligible_core_seconds
    FROM found GROUP BY experiment_id, request_key, stage, site_id
"""

# Jobs of a submission fail together: the variance of k failures among n jobs follows from the sum
# of k²/n over submissions.
_USUAL = f"""
    WITH submissions AS (
        SELECT j.experiment_id, j.request_key, j.stage, j.site_id, count(*) AS n,
               count(*) FILTER (WHERE j.state = ANY(%(failed)s)) AS k,
               sum(j.wall_seconds * j.cpus) AS core
        FROM jobs_job j
        WHERE j.ended_at >= %(since)s AND j.ended_at < %(start)s AND j.started_at IS NOT NULL
          AND NOT (tstzrange(j.started_at, j.ended_at) && %(outages)s::tstzmultirange) AND {_NEEDS}
        GROUP BY j.experiment_id, j.request_key, j.stage, j.site_id, j.cluster_id, j.spool_id
    )
    SELECT experiment_id, request_key, stage, site_id,
           sum(n), sum(k), count(*), sum(k * k / n::float), sum(core)
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


@dataclass
class Usual:
    """Jobs before the incident; `square_sum` is the sum of k²/n over submissions."""

    jobs: int = 0
    failed: int = 0
    submissions: int = 0
    square_sum: float = 0

    def add(self, jobs: int, failed: int, submissions: int, square_sum: float) -> None:
        self.jobs += jobs
        self.failed += failed
        self.submissions += submissions
        self.square_sum += square_sum

    @property
    def clumping(self) -> float:
        """Return Pearson's overdispersion of failures by submission, at least 1."""
        rate = self.failed / self.jobs if self.jobs else 0
        if self.submissions < 2 or not 0 < rate < 1:
            return 1.0
        spread = self.square_sum - self.failed * rate
        return max(1.0, spread / (rate * (1 - rate)) / (self.submissions - 1))


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
    values = _when(incident)
    start = values["start"]
    if values["end"] <= start:
        return []
    rows = _named(_EXPOSED, values)
    if not rows:
        return []
    usual = _rows(
        _USUAL, {**values, "since": start - BASELINE, "outages": _outages(incident, start)}
    )
    baselines = _baselines(usual)
    cores: dict[tuple[object, ...], float] = {}
    for experiment, key, stage, _, *_, core in usual:
        place = (experiment, key, stage)
        cores[place] = cores.get(place, 0) + float(core) / BASELINE.total_seconds()
    return [group for counts in rows if (group := _group(counts, baselines, cores)) is not None]


def confirmed_jobs(incident: Incident) -> list[int]:
    """Return the primary keys of jobs that, by their verdict, failed because of an incident."""
    values = _when(incident)
    if values["end"] <= values["start"]:
        return []
    return [pk for (pk,) in _rows(_CONFIRMED, values)]


def _when(incident: Incident) -> dict[str, Any]:
    """Return the query parameters that select the jobs exposed to an incident."""
    span, known_end = incident_span(incident)
    end = span.ended_at or FOREVER
    return {
        **_who_needs(incident),
        "slug": incident.service.slug,
        "start": span.started_at,
        "end": end,
        "known_end": known_end,
        "latest": FOREVER if end == FOREVER else end + LONGEST_JOB,
    }


def _group(
    counts: dict[str, Any],
    baselines: Mapping[tuple[object, ...], Usual],
    cores: Mapping[tuple[object, ...], float],
) -> ImpactGroup | None:
    exposed = counts.pop("exposed")
    group = ImpactGroup(**counts, partial=exposed - counts["contained"] - counts["containing"])
    if not exposed and not group.touching and not group.unknown:
        return None
    group.cores = cores.get((group.experiment_id, group.request_key, group.stage), 0)
    scopes = [
        (BaselineScope.SITE, (group.experiment_id, group.stage, group.site_id)),
        (BaselineScope.STAGE, (group.experiment_id, group.stage)),
        (BaselineScope.EXPERIMENT, (group.experiment_id,)),
    ]
    for scope, key in scopes:
        usual = baselines.get(key)
        if usual and usual.jobs >= FEWEST:
            group.baseline = scope
            group.clumping = usual.clumping
            group.baseline_jobs = usual.jobs
            group.baseline_failed = usual.failed
            break
    return group


def _baselines(rows: Iterable[tuple[Any, ...]]) -> dict[tuple[object, ...], Usual]:
    """Sum the usual jobs by site, stage and experiment."""
    baselines: dict[tuple[object, ...], Usual] = {}
    for experiment, _, stage, site, jobs, failed, submissions, square_sum, _ in rows:
        for key in ((experiment, stage, site), (experiment, stage), (experiment,)):
            baselines.setdefault(key, Usual()).add(int(jobs), int(failed), submissions, square_sum)
    return baselines


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
    over = min(span.ended_at or at, at)
    start = max(span.started_at, over - LONGEST_SHOWN)
    length = max(over - start, timedelta(minutes=10))
    since = start - length / 2
    until = min(max(over, start) + length / 4, at)

    seconds = max((until - since).total_seconds(), 60)
    width = next((width for width in BIN_SECONDS if seconds / width <= MOST_BINS), BIN_SECONDS[-1])
    first = since - timedelta(seconds=since.timestamp() % width)
    number = int((until - first).total_seconds() // width) + 1

    bins: dict[str, list[int]] = {}
    values = {**_who_needs(incident), "since": first, "until": until, "width": width}
    for experiment, place, jobs in _rows(_BINS, values):
        bins.setdefault(str(experiment or 0), [0] * number)[place] += jobs
    return Impact(incident=incident, counted_at=at, bins_from=first, bin_seconds=width, bins=bins)


def _who_needs(incident: Incident) -> dict[str, Any]:
    clusters = Cluster.objects.filter(service=incident.service_id).values_list("pk", flat=True)
    return {"service": incident.service_id, "clusters": list(clusters), "failed": _FAILED}


def _rows(sql: str, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, values)
        return list(cursor.fetchall())


def _named(sql: str, values: Mapping[str, Any]) -> list[dict[str, Any]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, values)
        names = [column.name for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
