"""What the jobs tell of requests where production asks."""

from collections.abc import Iterable, Sequence

from apps.jobs.models import Job, QueueCount
from apps.production.domain.lifecycle.sent import sign_of_work


@sign_of_work("jobs")
def requests_with_jobs(keys: Sequence[int]) -> Iterable[int]:
    """Keep the requests of which a job ended, or waits or runs."""
    for model in (Job, QueueCount):
        yield from model.objects.filter(request__in=keys).order_by().values_list("request_id", flat=True).distinct()
