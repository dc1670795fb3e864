"""Verdicts on jobs that failed, as diagnosis leaves them."""

from datetime import datetime

from apps.diagnosis.enums import ADVICE_OF, Category, Confidence, VerdictKind
from apps.diagnosis.models import FailureGroup, Verdict
from apps.jobs.models import Job
from apps.submission.domain.arrays.submissions import jobs_of
from apps.submission.models import Submission

CATEGORIES = {
    "service": Category.SERVICE,
    "code": Category.EXPERIMENT_CODE,
    "resource": Category.RESOURCE,
    "user": Category.USER,
}


def failure_group(*, at: datetime, **changes: object) -> FailureGroup:
    """A group of jobs that failed because of samweb, seen at this moment."""
    values = {
        "fingerprint": "f",
        "verdict": "service",
        "title": "samweb timed out",
        "status_at": at,
        "first_seen_at": at,
        "last_seen_at": at,
    }
    return FailureGroup.objects.create(**values | changes)


def verdict(job: Job, kind: str = "service", *, at: datetime, **changes: object) -> Verdict:
    """The verdict on a job that failed."""
    row = unsaved_verdict(job, kind, at=at, **changes)
    row.save(force_insert=True)
    return row


def unsaved_verdict(job: Job, kind: str = "service", *, at: datetime, **changes: object) -> Verdict:
    """The same verdict, to be inserted with others."""
    values = {
        "verdict": kind,
        "machine_verdict": kind,
        "advice": ADVICE_OF[VerdictKind(kind)],
        "category": CATEGORIES[kind],
        "confidence": Confidence.HIGH,
        "summary": f"it was a {kind} problem.",
        "catalogue_version": "test",
        "decided_at": at,
    }
    return Verdict(
        job=job, experiment=job.experiment, ended_at=job.ended_at, **{**values, **changes}
    )


def judge(
    submission: Submission, kinds: dict[int, str], *, at: datetime, service: str = ""
) -> None:
    """Pass a verdict of some kind on tasks of an array, by their numbers."""
    jobs = {int(job.job_id.partition("_")[2]): job for job in jobs_of(submission)}
    verdicts = [
        unsaved_verdict(jobs[task], kind, at=at, service=service) for task, kind in kinds.items()
    ]
    Verdict.objects.bulk_create(verdicts)
