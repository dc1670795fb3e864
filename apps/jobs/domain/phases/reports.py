"""Store the phases that jobs report, and read the phases of a job."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db import connection, transaction
from django.db.models import Exists

from apps.accounts.models import Experiment
from apps.clusters.models import Cluster
from apps.clusters.schedulers.plausibility import AHEAD
from apps.core.domain.quotas import DAY, Quota
from apps.core.errors import NotAllowed
from apps.jobs.domain.hosts import correct_cpu_model
from apps.jobs.domain.phases.logs import lock_phases_of_jobs, mark_log_phases
from apps.jobs.domain.phases.tokens import PhaseToken
from apps.jobs.domain.records.conversion import clean_text, hour_of
from apps.jobs.domain.records.values import BadRecord, read_number, read_time
from apps.jobs.domain.totals.rollups import mark_dirty
from apps.jobs.enums import Counted
from apps.jobs.models import Job, JobPhase

#: Maximum phases of one job. A job that reports more is reporting events, not phases.
MOST_OF_A_JOB = 500
#: Maximum phases of the jobs of one array, and so of one token.
MOST_OF_AN_ARRAY = 200_000
#: Maximum phases per day of the jobs of an experiment, over all tokens.
MOST_A_DAY = 2_000_000
_KNOWN = ("name", "started_at", "ended_at", "exit_code", "cpu_seconds")
_LONGEST = timedelta(days=90)
#: More CPU time than any phase has, and small enough for exact sums.
_MOST_CPU_SECONDS = 1e12
_PHASES_LOCK = 4_716_013


@dataclass
class StoredPhases:
    """The number of reported phases that were new, changed, unchanged and rejected.

    `problems` has the number of each rejected phase, from 1, and the reason.
    """

    new: int = 0
    changed: int = 0
    unchanged: int = 0
    problems: list[tuple[int, str]] = field(default_factory=list)

    @property
    def rejected(self) -> int:
        return len(self.problems)


@transaction.atomic
def store_phases(
    *,
    token: PhaseToken,
    job_id: str,
    host: str,
    phases: Sequence[object],
    at: datetime,
    cpu_model: str = "",
) -> StoredPhases:
    """Store the phases that a job reports.

    A phase is identified by job, name and start. A job may report it first without its end and
    again with it; a reported end never changes. Repeating a report changes nothing, and an invalid
    phase does not affect the others.

    Raises `NotAllowed` if the token belongs to another job array, or its experiment or cluster was
    deleted. Raises `LimitReached` if the experiment's jobs have reported too many phases today.
    """
    # The quota is read before the first query and updated after the commit: a slow cache must not
    # hold the token's lock.
    quota = _quota_of_the_day(token, at)
    check_token(token, job_id)
    array = array_of(job_id)
    stored = StoredPhases()
    ends = set()
    reported = JobPhase.objects.filter(
        cluster=token.cluster_id, job_id=job_id, token_label=token.label
    )
    known = {(phase.name, phase.started_at): phase for phase in reported}
    of_array = JobPhase.objects.filter(token_label=token.label, array_id=array).count()
    fields_of_job = {
        "cluster_id": token.cluster_id,
        "job_id": job_id,
        "array_id": array,
        "experiment_id": token.experiment_id,
        "request_key": token.request_key,
        "stage": token.stage,
        "token_label": token.label,
        "host": host,
        "cpu_model": cpu_model,
        "received_at": at,
    }

    for number, raw in enumerate(phases, start=1):
        try:
            fields = _phase_from(raw, at)
        except BadRecord as error:
            stored.problems.append((number, str(error)))
            continue
        key = fields["name"], fields["started_at"]
        phase = known.get(key)
        if phase is None:
            problem = _limit_problem(of_job=len(known), of_array=of_array + stored.new)
            if problem:
                stored.problems.append((number, problem))
                continue
            known[key] = JobPhase.objects.create(**fields_of_job, **fields)
            stored.new += 1
            ends.add(fields["ended_at"])
        elif phase.ended_at is None and fields["ended_at"] is not None:
            _update(phase, fields)
            stored.changed += 1
            ends.add(fields["ended_at"])
        else:
            stored.unchanged += 1

    transaction.on_commit(lambda: quota.add(token.experiment_id, stored.new, at=at))
    mark_dirty({hour_of(ended_at) for ended_at in ends if ended_at}, Counted.PHASES)
    _recount_log_phases(token.cluster_id, job_id)
    if cpu_model and stored.new:
        correct_cpu_model(phase=max(known.values(), key=lambda phase: phase.pk))
    return stored


def _limit_problem(*, of_job: int, of_array: int) -> str:
    """Return why no phase can be added to so many of a job and of its array; empty if one can."""
    if of_job >= MOST_OF_A_JOB:
        return f"The job has reported {MOST_OF_A_JOB} phases already."
    if of_array >= MOST_OF_AN_ARRAY:
        return f"The jobs of this array have reported {MOST_OF_AN_ARRAY:,} phases already."
    return ""


def _update(phase: JobPhase, fields: Mapping[str, Any]) -> None:
    for name, value in fields.items():
        setattr(phase, name, value)
    phase.save(update_fields=list(fields))


def check_token(token: PhaseToken, job_id: str) -> None:
    """Raise `NotAllowed` if a token may not be used for this job.

    Another array uses it, or its experiment or cluster was deleted.
    """
    if not Cluster.objects.filter(
        Exists(Experiment.objects.filter(pk=token.experiment_id)), pk=token.cluster_id
    ).exists():
        raise NotAllowed("The experiment or the cluster of this token no longer exists.")
    check_array(token=token, job_id=job_id)


def _recount_log_phases(cluster_id: int, job_id: str) -> None:
    """Mark a job's log phases for a recount, because the reported phases now count instead."""
    lock_phases_of_jobs([(cluster_id, job_id)])
    mark_log_phases(Job.objects.filter(cluster=cluster_id, job_id=job_id))


def _quota_of_the_day(token: PhaseToken, at: datetime) -> Quota:
    """Return the quota for the phases of an experiment. Raises `LimitReached` if it is used up."""
    quota = Quota("phases", MOST_A_DAY, DAY)
    if quota.add(token.experiment_id, 0, at=at) >= quota.most:
        raise quota.refusal(
            f"The jobs of this experiment have reported {quota.most:,} phases today.", at=at
        )
    return quota


def check_array(*, token: PhaseToken, job_id: str) -> None:
    """Lock a token for this transaction.

    Raises `NotAllowed` if another job array has reported with it.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_advisory_xact_lock(%s, hashtext(%s))", [_PHASES_LOCK, token.label]
        )
    if JobPhase.objects.filter(token_label=token.label).exclude(array_id=array_of(job_id)).exists():
        raise NotAllowed("This token is in use by another job array. Each needs its own.")


def array_of(job_id: str) -> str:
    """Return the array part of a job ID: 86 for 86_3, 86[3].server and 86.0."""
    digits = job_id[: len(job_id) - len(job_id.lstrip("0123456789"))]
    return digits or job_id


def _phase_from(raw: object, at: datetime) -> dict[str, Any]:
    """Return the validated fields of a reported phase. Raises `BadRecord`."""
    if not isinstance(raw, Mapping):
        raise BadRecord("This is not an object with fields.")
    values = {}
    for name, value in raw.items():
        if value not in (None, ""):
            values[str(name)] = value
    if unknown := sorted(values.keys() - set(_KNOWN)):
        raise BadRecord(f"Unknown field {unknown[0][:64]!r}.")
    if missing := [name for name in ("name", "started_at") if name not in values]:
        raise BadRecord(f"{missing[0]} is missing.")
    if isinstance(values["name"], Mapping | list):
        raise BadRecord("name is not a text.")

    fields: dict[str, Any] = {
        "name": clean_text(" ".join(str(values["name"]).split()), 64),
        "started_at": read_time("started_at", values["started_at"]),
        "ended_at": read_time("ended_at", values["ended_at"]) if "ended_at" in values else None,
        "exit_code": int(read_number("exit_code", values.get("exit_code", 0), negative=True)),
        "cpu_seconds": read_number("cpu_seconds", values["cpu_seconds"])
        if "cpu_seconds" in values
        else None,
    }
    _check(fields, at)
    return fields


def _check(fields: Mapping[str, Any], at: datetime) -> None:
    if not fields["name"]:
        raise BadRecord("name is empty.")
    if not -(2**31) <= fields["exit_code"] < 2**31:
        raise BadRecord("exit_code is out of range.")
    if fields["cpu_seconds"] is not None and fields["cpu_seconds"] > _MOST_CPU_SECONDS:
        raise BadRecord("cpu_seconds is out of range.")
    for name in ("started_at", "ended_at"):
        if fields[name] and fields[name] > at + AHEAD:
            raise BadRecord(f"{name} is in the future. Is the host's clock right?")
    if fields["started_at"] < at - _LONGEST:
        raise BadRecord("started_at is more than 90 days ago.")
    if fields["ended_at"] and fields["ended_at"] < fields["started_at"]:
        raise BadRecord("The phase ended before it started.")


@dataclass(frozen=True, slots=True)
class ShownPhase:
    """A phase as the job page shows it.

    `left` and `width` are percentages of the time from submission to end. A phase without an end
    lasts until the next phase starts or the job ends.
    """

    name: str
    seconds: float
    cpu_seconds: float | None
    failed: bool
    left: float
    width: float
    kind: str

    @property
    def right(self) -> float:
        return self.left + self.width


def phases_of(job: Job) -> list[ShownPhase]:
    """Return queue time and phases of one attempt in order; nothing if it reported none.

    Only phases reported for the job's own experiment count, because job IDs are no secret.
    """
    if job.started_at is None:
        return []
    phases_of_job = JobPhase.objects.filter(
        cluster=job.cluster_id,
        job_id=job.job_id,
        experiment=job.experiment_id,
        started_at__gte=job.started_at - AHEAD,
        started_at__lt=job.ended_at + AHEAD,
    )
    rows = list(phases_of_job.order_by("started_at", "pk"))
    if not rows:
        return []
    whole = max((job.ended_at - job.submitted_at).total_seconds(), 1.0)

    def within_job(moment: datetime) -> datetime:
        return min(max(moment, job.submitted_at), job.ended_at)

    def shown(
        name: str, start: datetime, end: datetime, kind: str, cpu: float | None = None
    ) -> ShownPhase:
        start = within_job(start)
        end = within_job(end)
        seconds = max((end - start).total_seconds(), 0.0)
        left = 100 * (start - job.submitted_at).total_seconds() / whole
        return ShownPhase(name, seconds, cpu, kind == "bad", left, 100 * seconds / whole, kind)

    phases = [shown("queued", job.submitted_at, job.started_at, "q")]
    starts = [phase.started_at for phase in rows[1:]] + [job.ended_at]
    for number, (phase, following) in enumerate(zip(rows, starts, strict=True)):
        is_open = phase.ended_at is None and following == job.ended_at
        bad = phase.exit_code != 0 or (is_open and job.is_failed)
        kind = "bad" if bad else f"p{1 + number % 2}"
        phases.append(
            shown(
                phase.name, phase.started_at, phase.ended_at or following, kind, phase.cpu_seconds
            )
        )
    return phases
