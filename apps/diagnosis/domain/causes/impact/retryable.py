"""After an incident, report how many jobs that failed because of it can be retried."""

from datetime import datetime

from apps.core.domain.events import publish
from apps.diagnosis.domain.causes.impact.count import confirmed_jobs
from apps.diagnosis.models import Verdict
from apps.statusboard.models import Incident


def report_retryable(*, incident: Incident, at: datetime) -> int:
    """Publish how many jobs failed because of an incident and were not retried.

    Return their number. Nothing is published without such jobs, or while an incident merged with it
    is still open.
    """
    if (
        incident.merged_into_id
        or incident.ended_at is None
        or incident.merged.filter(ended_at=None).exists()
    ):
        return 0
    jobs = Verdict.objects.filter(job__in=confirmed_jobs(incident), later_state="").count()
    if jobs:
        text = (
            f"{incident.service.name} is back: {jobs:,} failed "
            f"job{'s were' if jobs != 1 else ' was'} not retried."
        )
        publish(
            kind="impact.retryable",
            target=incident,
            by="diagnosis",
            at=at,
            reason=text,
            data={"jobs": jobs},
        )
    return jobs
