"""Verdicts on jobs that failed, as diagnosis leaves them."""

from datetime import datetime

from apps.diagnosis.enums import ADVICE_OF, Category, Confidence, VerdictKind
from apps.diagnosis.models import Verdict
from apps.submission.domain.submissions import jobs_of
from apps.submission.models import Submission

CATEGORIES = {
    "service": Category.SERVICE,
    "code": Category.EXPERIMENT_CODE,
    "resource": Category.RESOURCE,
    "user": Category.USER,
}


def judge(submission: Submission, kinds: dict[int, str], *, at: datetime, service: str = "") -> None:
    """Pass a verdict of some kind on tasks of an array, by their numbers."""
    jobs = {int(job.job_id.partition("_")[2]): job for job in jobs_of(submission)}
    for task, kind in kinds.items():
        Verdict.objects.create(
            job=jobs[task],
            experiment=jobs[task].experiment,
            ended_at=jobs[task].ended_at,
            verdict=kind,
            machine_verdict=kind,
            advice=ADVICE_OF[VerdictKind(kind)],
            category=CATEGORIES[kind],
            confidence=Confidence.HIGH,
            service=service,
            summary=f"it was a {kind} problem.",
            catalogue_version="test",
            decided_at=at,
        )
