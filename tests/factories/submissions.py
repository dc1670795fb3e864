"""Jobs that the portal sent to a cluster, for tests."""

from datetime import timedelta

from apps.clusters.schedulers.base import JobState
from apps.jobs.models import Job
from apps.production.enums import PORTAL
from apps.submission.domain.arrays.plan import lock_request, plan_retry
from apps.submission.domain.arrays.submissions import unretried_indices
from tests.factories.jobs import record, store
from tests.factories.requests import AT


def end_jobs(
    submission, *, failed=(), tasks=None, at=AT + timedelta(hours=1), state="failed"
) -> list[Job]:
    """Let jobs of a submission end: completed, but for those of `failed`, by number of task."""
    submission.refresh_from_db()
    records = [
        record(
            int(submission.spool_id) * 100 + task,
            job_id=f"{submission.spool_id}_{task}",
            spool_id=submission.spool_id,
            state=JobState(state if task in failed else "completed"),
            submitted_at=submission.sent_at,
            started_at=submission.sent_at,
            ended_at=at,
            wall_seconds=1800,
            max_memory_bytes=2_000_000_000,
        )
        for task in (range(submission.tasks) if tasks is None else tasks)
    ]
    return store(submission.cluster, *records, at=at)


def retry_failed(submission, *, verdict="service", at=AT + timedelta(hours=1)):
    """Plan the failed jobs of an array again that have this verdict."""
    submission.refresh_from_db()
    return plan_retry(
        submission=submission,
        request=lock_request(submission.request),
        indices=unretried_indices(submission, verdict=verdict),
        by=PORTAL,
        at=at,
        reason="Service problem.",
    )
