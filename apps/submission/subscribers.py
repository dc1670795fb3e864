"""What submissions tell of requests where production asks."""

from collections.abc import Iterable, Sequence

from apps.production.sent import sign_of_work
from apps.submission.models import Submission


@sign_of_work("submissions")
def requests_with_submissions(keys: Sequence[int]) -> Iterable[int]:
    """Keep the requests of which jobs were sent, or are to be."""
    rows = Submission.objects.filter(request__in=keys)
    return rows.order_by().values_list("request_id", flat=True).distinct()
