"""The accounting record of an attempt, and the truth about it."""

from datetime import UTC, datetime
from pathlib import Path

from apps.clusters.schedulers.base import JobRecord, JobState
from apps.clusters.schedulers.simulated import PARTITION
from apps.demo.simulation.workload import SimulatedArray, SimulatedAttempt
from apps.demo.simulation.world import DOMAIN, cpu_of


def record_of(submission: SimulatedArray, attempt: SimulatedAttempt, log: Path) -> JobRecord:
    """Return the accounting record of an attempt."""
    campaign = submission.campaign
    end = attempt.cause.end
    if attempt.started is not None:
        wall = attempt.ended - attempt.started
    else:
        wall = 0
    requeued = end.state is JobState.NODE_FAIL
    return JobRecord(
        job_id=attempt.job_id,
        raw_id=attempt.raw_id,
        spool_id=str(submission.spool_id),
        attempt=attempt.number,
        state=end.state,
        exit_code=end.exit_code,
        signal=end.signal,
        submitted_at=datetime.fromtimestamp(submission.submitted, UTC),
        started_at=None
        if attempt.started is None
        else datetime.fromtimestamp(attempt.started, UTC),
        ended_at=datetime.fromtimestamp(attempt.ended, UTC),
        host=attempt.host,
        cpus=1 if wall else 0,
        cpu_seconds=round(wall * attempt.cpu_share, 3),
        wall_seconds=wall,
        max_memory_bytes=int(attempt.memory_share * campaign.memory_mb * 1024**2)
        if wall and not requeued
        else None,
        requested_memory_bytes=campaign.memory_mb * 1024**2,
        time_limit_seconds=campaign.limit_seconds,
        partition=PARTITION,
        account=campaign.experiment.lower(),
        user=campaign.user,
        name=submission.name,
        comment=submission.comment,
        reason=end.reason,
        cancelled_by=campaign.user if end.state is JobState.CANCELLED else "",
        work_dir=f"/home/{campaign.user}/production/{campaign.stage}",
        submit_line=f"sbatch --parsable {campaign.stage}.sh",
        stdout_path=str(log) if wall else "",
        stderr_path=str(log) if wall else "",
        cpu_model=cpu_of(attempt.host) if attempt.host else "",
    )


def truth_of(submission: SimulatedArray, attempt: SimulatedAttempt) -> dict[str, object]:
    """Return the truth about a failed attempt: the planted cause and the correct verdict."""
    cause = attempt.cause
    return {
        "job_id": attempt.job_id,
        "raw_id": attempt.raw_id,
        "attempt": attempt.number,
        "ended_at": _iso(attempt.ended),
        "experiment": submission.campaign.experiment,
        "request": submission.campaign.request,
        "stage": submission.campaign.stage,
        "host": f"{attempt.host}.{DOMAIN}" if attempt.host else "",
        "kind": cause.kind.value,
        "blame": cause.blame,
        "outage": [_iso(moment) for moment in cause.outage] if cause.outage else None,
        "verdict": cause.end.verdict,
    }


def _iso(moment: int) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat()
