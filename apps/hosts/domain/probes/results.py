"""Store what probe jobs report, and return hosts that have proved themselves."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.db import transaction

from apps.core.errors import NotAllowed
from apps.hosts.domain.exclusions import end_exclusion
from apps.hosts.enums import EndKind, ProbeState
from apps.hosts.models import HostExclusion, MeasuredState, Probe, ProbeJob, ProbeResult
from apps.jobs.domain.collection.masking_rules import current_masker
from apps.jobs.domain.records.conversion import clean_text
from apps.jobs.domain.records.values import BadRecord, read_number, read_time
from apps.production.enums import PORTAL
from apps.statusboard.enums import INCIDENT_STATES, State
from apps.statusboard.models import StateInterval

#: Good probe jobs in a row after which a host that the portal excluded is returned.
GOOD_IN_A_ROW = 3
#: A host that is excluded again within this time of its return by probes is left to people: the
#: probes do not see what is wrong with it.
RELAPSE = timedelta(days=1)
_MOST_MESSAGE = 300
_MOST_SECONDS = 100_000


@dataclass
class StoredResults:
    """The number of reported results that were new, unchanged and rejected.

    `problems` has the number of each rejected result, from 1, and the reason. A phase that has
    only started is unchanged.
    """

    new: int = 0
    unchanged: int = 0
    problems: list[tuple[int, str]] = field(default_factory=list)

    @property
    def changed(self) -> int:
        return 0

    @property
    def rejected(self) -> int:
        return len(self.problems)


@dataclass(frozen=True, slots=True)
class ProbeOutcome:
    """How one probe ended."""

    good: bool
    seconds: int | None
    message: str


@transaction.atomic
def store_results(*, job_name: str, phases: Sequence[object], at: datetime) -> StoredResults:
    """Store the results of a probe job's probes, which `ops-phase` reports as phases.

    Repeating a report changes nothing, and an invalid result does not affect the others. The job
    ends with its last result. Raises `NotAllowed` if the job does not exist any more.
    """
    jobs = ProbeJob.objects.select_for_update(of=("self",))
    job = jobs.select_related("cluster", "exclusion").filter(name=job_name).first()
    if job is None:
        raise NotAllowed("The portal has no probe job of this token.")
    probes = {probe.name: probe for probe in Probe.objects.filter(name__in=job.asked)}
    known = set(ProbeResult.objects.filter(job=job).values_list("probe__name", flat=True))
    done = StoredResults()
    for number, phase in enumerate(phases, start=1):
        try:
            name, outcome = _read_phase(phase)
            if name not in probes:
                raise BadRecord("name is not that of a probe of this job.")
            if outcome is None or name in known:
                done.unchanged += 1
                continue
            if job.ended_at is not None:
                raise BadRecord("The probe job has ended.")
        except BadRecord as error:
            done.problems.append((number, str(error)))
            continue
        _store_result(job, probes[name], outcome, at)
        known.add(name)
        done.new += 1

    # Also after a report without news: a probe that had not reported may have been deleted.
    if job.ended_at is None and known and known >= probes.keys():
        end_probe_job(job, ProbeState.ENDED, good=not has_faults(job), at=at)
    return done


def has_faults(job: ProbeJob) -> bool:
    """Return whether a result of a probe job speaks against its host."""
    return ProbeResult.objects.filter(job=job, good=False, excused=False).exists()


def _read_phase(phase: object) -> tuple[str, ProbeOutcome | None]:
    """Return the name of a phase and its outcome, None if it has not ended.

    Raises `BadRecord`.
    """
    if not isinstance(phase, dict):
        raise BadRecord("This is no object.")
    name = phase.get("name")
    if not isinstance(name, str):
        raise BadRecord("name is missing.")
    if phase.get("ended_at") is None:
        return name, None
    wall = read_time("ended_at", phase["ended_at"]) - read_time(
        "started_at", phase.get("started_at")
    )
    exit_code = read_number("exit_code", phase.get("exit_code"), negative=True)
    note = phase.get("note", "")
    if not isinstance(note, str):
        raise BadRecord("note is no text.")
    seconds = min(max(int(wall.total_seconds()), 0), _MOST_SECONDS)
    message = note.strip()
    if exit_code and not message:
        message = f"exit code {exit_code:g}"
    return name, ProbeOutcome(good=exit_code == 0, seconds=seconds, message=message)


def _store_result(job: ProbeJob, probe: Probe, outcome: ProbeOutcome, at: datetime) -> None:
    """Store a result, and the state of its host.

    The time is read from the clock of the portal: the clock of the host may be wrong.
    """
    message = clean_text(current_masker().mask_text(outcome.message), _MOST_MESSAGE)
    ProbeResult.objects.create(
        job=job,
        probe=probe,
        good=outcome.good,
        excused=not outcome.good and _is_service_out(probe, at),
        seconds=outcome.seconds,
        message=message,
        measured_at=at,
    )
    values = {"good": outcome.good, "message": message, "measured_at": at}
    states = MeasuredState.objects.select_for_update(of=("self",))
    state, created = states.get_or_create(
        cluster=job.cluster, host=job.host, probe=probe, defaults={**values, "since": at}
    )
    if created:
        return
    if state.good != outcome.good:
        state.since = at
    for name, value in values.items():
        setattr(state, name, value)
    state.save(update_fields=["good", "message", "measured_at", "since"])


def _is_service_out(probe: Probe, at: datetime) -> bool:
    """Return whether the service of a probe is reported as down, degraded or in maintenance."""
    if probe.service_id is None:
        return False
    intervals = StateInterval.objects.filter(service=probe.service_id).current(at)
    return intervals.filter(state__in=[*INCIDENT_STATES, State.MAINTENANCE]).exists()


def store_missing_results(job: ProbeJob, *, at: datetime) -> bool:
    """Store that probes of a lost job did not end, in the transaction of the caller.

    Returns False, and stores nothing, if none of its probes has reported.
    """
    known = set(ProbeResult.objects.filter(job=job).values_list("probe", flat=True))
    if not known:
        return False
    for probe in Probe.objects.filter(name__in=job.asked).exclude(pk__in=known):
        _store_result(job, probe, ProbeOutcome(False, None, "It did not end in time."), at)
    return True


def end_probe_job(job: ProbeJob, state: ProbeState, *, good: bool, at: datetime) -> None:
    """End a locked probe job, in the transaction of the caller.

    `good` means that no probe speaks against the host. It may be the one that returns the host.
    """
    job.state = state
    job.good = good
    job.ended_at = at
    job.save(update_fields=["state", "good", "ended_at", "last_error"])
    if good and job.exclusion_id is not None:
        _return_if_proven(job.exclusion_id, at)


def count_good_in_a_row(jobs: Iterable[ProbeJob]) -> int:
    """Return how many of these finished probe jobs, newest first, were good without a bad one."""
    good_jobs = 0
    for job in jobs:
        if not job.good:
            break
        good_jobs += 1
    return good_jobs


def finished_jobs_of(exclusion: HostExclusion) -> list[ProbeJob]:
    """Return the newest finished probe jobs of an exclusion, as many as its end depends on.

    Those that could not be submitted say nothing about the host.
    """
    finished = ProbeJob.objects.filter(exclusion=exclusion, ended_at__isnull=False)
    finished = finished.exclude(state=ProbeState.LOST, sent_at=None)
    return list(finished.order_by("-planned_at", "-pk")[:GOOD_IN_A_ROW])


def is_relapse(exclusion: HostExclusion) -> bool:
    """Return whether a host was excluded again soon after its probes had returned it."""
    earlier = HostExclusion.objects.filter(
        cluster=exclusion.cluster_id,
        host=exclusion.host,
        ended_as=EndKind.PROBED,
        ended_at__gt=exclusion.started_at - RELAPSE,
        ended_at__lte=exclusion.started_at,
    )
    return earlier.exists()


def returns_by_probes(exclusion: HostExclusion) -> bool:
    """Return whether good probes end an exclusion: one by the portal that is no relapse."""
    return exclusion.automatic and not is_relapse(exclusion)


def _return_if_proven(exclusion_id: int, at: datetime) -> None:
    exclusions = HostExclusion.objects.select_for_update(of=("self",)).select_related("cluster")
    exclusion = exclusions.get(pk=exclusion_id)
    if not exclusion.is_in_effect(at) or not returns_by_probes(exclusion):
        return
    jobs = finished_jobs_of(exclusion)
    if count_good_in_a_row(jobs) < GOOD_IN_A_ROW:
        return
    reason = f"{GOOD_IN_A_ROW} probe jobs in a row were good ({', '.join(jobs[0].asked)})."
    end_exclusion(exclusion, EndKind.PROBED, by=PORTAL, at=at, reason=reason)
