"""Count known errors that were left out of log analyses because they are too slow."""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime

from django.db.models import F

from apps.core.domain.events import publish
from apps.diagnosis.models import KnownError, KnownErrorOmission
from apps.jobs.models import Job

PORTAL = "opsportal"


def count_omissions(omissions: Mapping[Job, Iterable[str]], *, at: datetime) -> None:
    """Count analyses that left known errors out, given by job and ID, in the caller's transaction.

    The first omission since the expression was changed notifies the approvers.
    """
    analyses: Counter[str] = Counter()
    last_jobs: dict[str, Job] = {}
    for job, known_errors in omissions.items():
        for known_error in set(known_errors):
            analyses[known_error] += 1
            last_jobs[known_error] = job
    if not analyses:
        return

    entries = KnownError.objects.filter(pk__in=analyses).order_by("pk")  # one order for all locks
    for entry in entries:
        _, is_first = KnownErrorOmission.objects.get_or_create(
            known_error=entry, defaults={"since": at, "last_at": at}
        )
        KnownErrorOmission.objects.filter(known_error=entry).update(
            analyses=F("analyses") + analyses[entry.pk], last_at=at, last_job=last_jobs[entry.pk].pk
        )
        if is_first:
            publish(kind="known_error.omitted", target=entry, by=PORTAL, at=at)


def forget_omissions(known_error: str) -> None:
    """Reset the count of a known error whose expression has changed."""
    KnownErrorOmission.objects.filter(known_error=known_error).delete()
