"""Read the jobs of a period as columns of numbers, a few bytes per job; texts become hashes."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

import numpy as np
import psycopg
from django.conf import settings
from django.db import connection
from django.db.models import Func, IntegerField, TextField, Value
from django.db.models.functions import Concat

from apps.clusters.models import Cluster
from apps.diagnosis.domain.causes.common.peeling import Codes, JobColumns, Mask
from apps.jobs.enums import FAILED_STATES, NONE
from apps.production.models import Stage
from apps.statusboard.enums import State
from apps.statusboard.models import Service, StateInterval

#: SQL expressions for the text of each attribute, with `jobs_job j`.
TEXTS = {
    "site": "coalesce((SELECT name FROM clusters_site WHERE id = j.site_id), '')",
    "host": "split_part(j.host, '.', 1)",
    "host and time": """split_part(j.host, '.', 1) || ', 6 h from ' || to_char(
        date_bin('6 hours', j.started_at, TIMESTAMPTZ '1970-01-01 00:00+00') AT TIME ZONE %(zone)s,
        'FMDD Mon HH24:MI')
    """,
    "CPU model": "j.cpu_model",
    "release": "j.release",
    "stage": """coalesce((SELECT key FROM accounts_experiment WHERE id = j.experiment_id), '')
        || ' ' || coalesce(nullif(j.stage, ''), '(no stage)')
    """,
    "user": "j.user",
}
#: SQL expressions for the number of each attribute. Texts are read only for causes.
_CODES = {
    "site": "coalesce(j.site_id, 0)",
    "stage": "hashtext(coalesce(j.experiment_id, 0) || ' ' || j.stage)",
    **{name: f"hashtext({TEXTS[name]})" for name in ("host", "CPU model", "release", "user")},
    # A host that is broken for some hours hardly shows in a week of its jobs. Of equal causes, the
    # first is taken.
    "host and time": (
        "hashtext(split_part(j.host, '.', 1) || ' ' || extract(epoch FROM j.started_at)::int / "
        "21600)"
    ),
}
#: The value of "host and time" in SQL: a host, and the start of a period of six hours.
_HOST_AND_START = (
    "split_part(j.host, '.', 1), date_bin('6 hours', j.started_at, TIMESTAMPTZ '1970-01-01 "
    "00:00+00')"
)
#: The value of "stage" in SQL: the key of an experiment, and the name of a stage.
_EXPERIMENT_AND_STAGE = "(SELECT key FROM accounts_experiment WHERE id = j.experiment_id), j.stage"
_HOUR = "hour"
#: Filters of the job list by attribute.
_FILTERS = {
    "site": "site",
    "host": "host",
    "CPU model": "cpu_model",
    "release": "release",
    "user": "user",
}
#: Jobs that ended up to this long after an outage may have run during it.
_LONGEST_JOB = timedelta(days=14)
_PERIOD = """
    FROM jobs_job j
    WHERE j.ended_at >= %(since)s AND j.ended_at < %(until)s AND j.started_at IS NOT NULL
      AND (j.state = 'completed' OR j.state = ANY(%(failed)s))
      AND (%(everything)s OR j.experiment_id = ANY(%(experiments)s))
"""
_NUMBERS = (
    "(j.state <> 'completed')::int",
    "hashtext(j.cluster_id || '/' || j.spool_id)",
    "extract(epoch FROM j.started_at)::int",
    "extract(epoch FROM j.ended_at)::int",
    "j.cluster_id::int",
    "hashtext(j.request_key || '/' || coalesce(j.experiment_id, 0) || '/' || j.stage)",
    "extract(hour FROM j.started_at AT TIME ZONE %(zone)s)::int",
)
_HEADER_BYTES = 19  # of PostgreSQL's binary COPY format


@dataclass(frozen=True)
class JobPeriod:
    """The jobs of some experiments (None for all) that ended in [since, until).

    Only jobs that completed or failed count.
    """

    since: datetime
    until: datetime
    experiments: Collection[int] | None = None

    @property
    def values(self) -> dict[str, Any]:
        return {
            "since": self.since,
            "until": self.until,
            "failed": sorted(state.value for state in FAILED_STATES),
            "everything": self.experiments is None,
            "experiments": sorted(self.experiments or ()),
            "zone": settings.TIME_ZONE,
        }


@dataclass(frozen=True)
class ReadColumns:
    """The columns, and for each attribute the stored number of each code."""

    jobs: JobColumns
    stored: dict[str, Codes]


def read_columns(period: JobPeriod) -> ReadColumns:
    """Read the jobs of a period, and which of them ran during an outage of a needed service."""
    failed, submission, started, ended, cluster, needs, hour, *others = _copied(period)
    attributes = {_HOUR: hour.astype(np.int64)}
    stored = {_HOUR: np.arange(24)}
    for name, column in zip(_CODES, others, strict=True):
        stored[name], attributes[name] = np.unique(column, return_inverse=True)
    outages = _outages(period, started, ended, cluster, needs)
    columns = JobColumns(
        failed.astype(bool), np.unique(submission, return_inverse=True)[1], attributes, outages
    )
    return ReadColumns(columns, stored)


def text_of(period: JobPeriod, attribute: str, number: int) -> str:
    """Return the text of a value, such as the name of a host, read from any job with the value."""
    if attribute == _HOUR:
        return f"{number:02}:00"
    values = _first_row(period, attribute, number, TEXTS[attribute])
    return str(values[0]).strip() if values else ""


def job_list_query(period: JobPeriod, attribute: str, number: int) -> str:
    """Return the query of the job list for the jobs of a period with a value.

    Return "" if the list has no such filter.
    """
    filters = {"ended_from": period.since.isoformat(), "ended_to": period.until.isoformat()}
    if attribute == _HOUR:
        filters["started_hour"] = f"{number:02}"
    elif attribute in _FILTERS:
        filters[_FILTERS[attribute]] = text_of(period, attribute, number) or NONE
    elif attribute == "host and time" and (
        values := _first_row(period, attribute, number, _HOST_AND_START)
    ):
        host, start = values
        filters["host"] = host or NONE
        filters["started_from"] = start.isoformat()
        filters["started_to"] = (start + timedelta(hours=6)).isoformat()
    elif attribute == "stage" and (
        values := _first_row(period, attribute, number, _EXPERIMENT_AND_STAGE)
    ):
        experiment, stage = values
        filters["experiment"] = experiment or NONE
        filters["stage"] = stage or NONE
    else:
        return ""
    return urlencode(filters)


def _first_row(
    period: JobPeriod, attribute: str, number: int, expressions: str
) -> tuple[Any, ...] | None:
    """Return the values of SQL expressions for any job with a value; None without such a job."""
    sql = f"SELECT {expressions} {_PERIOD} AND {_CODES[attribute]} = %(number)s LIMIT 1"
    with connection.cursor() as cursor:
        cursor.execute(sql, {**period.values, "number": number})
        values: tuple[Any, ...] | None = cursor.fetchone()
        return values


def _copied(period: JobPeriod) -> list[Codes]:
    """Return one array per expression.

    Every field has four bytes, so all rows have equal length.
    """
    expressions = [*_NUMBERS, *(f"({code})::int" for code in _CODES.values())]
    connection.ensure_connection()
    statement = f"COPY (SELECT {', '.join(expressions)} {_PERIOD}) TO STDOUT (FORMAT BINARY)"
    with (
        psycopg.ClientCursor(connection.connection) as cursor,
        cursor.copy(statement, period.values) as copy,
    ):
        data = b"".join(bytes(chunk) for chunk in copy)
    fields = [("fields", ">i2")]
    for number in range(len(expressions)):
        fields += [(f"size{number}", ">i4"), (f"value{number}", ">i4")]
    layout = np.dtype(fields)
    rows = np.frombuffer(
        data, layout, count=(len(data) - _HEADER_BYTES) // layout.itemsize, offset=_HEADER_BYTES
    )
    return [rows[f"value{number}"].astype(np.int64) for number in range(len(expressions))]


def _outages(
    period: JobPeriod, started: Codes, ended: Codes, cluster: Codes, needs: Codes
) -> dict[str, Mask]:
    """Return for each service with an outage which jobs needed it and ran during the outage."""
    rows = StateInterval.objects.filter(state__in=(State.DOWN, State.DEGRADED))
    rows = rows.overlapping(period.since - _LONGEST_JOB, period.until).order_by("started_at")
    spans: dict[int, list[tuple[int, int]]] = {}
    for pk, start, end in rows.values_list("service", "started_at", "ended_at"):
        over = int((end or max(period.until, datetime.now(UTC))).timestamp())
        known = spans.setdefault(pk, [])
        if known and int(start.timestamp()) <= known[-1][1]:
            known[-1] = (known[-1][0], max(known[-1][1], over))
        else:
            known.append((max(int(start.timestamp()), 0), over))
    masks = {}
    for service in Service.objects.filter(pk__in=spans).order_by("slug"):
        starts, ends = (np.array(side) for side in zip(*spans[service.pk], strict=True))
        following = np.searchsorted(ends, started, side="right")
        met = (following < len(ends)) & (starts[np.minimum(following, len(ends) - 1)] < ended)
        mask = met & (np.isin(cluster, _clusters_of(service)) | np.isin(needs, _stages_of(service)))
        if mask.any():
            masks[service.slug] = mask
    return masks


def _clusters_of(service: Service) -> list[int]:
    return list(Cluster.objects.filter(service=service).values_list("pk", flat=True))


def _stages_of(service: Service) -> list[int]:
    """Return the hashes of the stages that need a service."""
    slash = Value("/")
    text = Concat(
        "request__key", slash, "request__experiment_id", slash, "name", output_field=TextField()
    )
    stages = Stage.objects.filter(services=service)
    return list(stages.values_list(Func(text, function="hashtext", output_field=IntegerField())))
