"""What submissions tell of requests where production asks."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from django.db.models import Count, F, Max, Q, Sum
from django.db.models.functions import Coalesce

from apps.production.domain.lifecycle.sent import STUCK, STUCK_SINCE, sign_of_work
from apps.production.enums import RequestState
from apps.production.models import StageAcceptance
from apps.submission.enums import SubmissionState
from apps.submission.models import Submission

#: So long a verdict and the next turn are waited for before a person is.
_MAY_BE_SENT_AGAIN = timedelta(minutes=30)


@sign_of_work("submissions")
def requests_with_submissions(keys: Sequence[int]) -> Iterable[int]:
    """Keep the requests of which jobs were sent, or are to be."""
    rows = Submission.objects.filter(request__in=keys)
    return rows.order_by().values_list("request_id", flat=True).distinct()


def stuck_requests(at: datetime | None) -> set[int]:
    """Return the running requests with jobs that failed, or were refused, and wait for a person.

    What has just failed may be sent again by itself, and is left out for a while.
    """
    refused = Q(state=SubmissionState.FAILED)
    again = Sum("tasks", filter=Q(retry_of__isnull=False) & ~refused, default=0)
    rows = Submission.objects.filter(request__state=RequestState.RUNNING, is_test=False).order_by()
    sums = rows.values("request", "position").annotate(
        left=Sum("ended") - Sum("completed") - again, refused=Count("pk", filter=refused), last=Max("settled_at")
    )
    failed = Q(left__gt=0) & (Q(last__lte=at - _MAY_BE_SENT_AGAIN) if at else Q())
    found = sums.filter(failed | Q(refused__gt=0)).values_list("request", "position")
    taken = StageAcceptance.objects.filter(stage__request__state=RequestState.RUNNING)
    return {request for request, _ in set(found) - set(taken.values_list("stage__request", "stage__position"))}


STUCK.append(stuck_requests)


def stuck_since_of(keys: Sequence[int]) -> dict[int, datetime]:
    """Return since when the first of the jobs of these requests waits for a person: it was refused, or its array ended.

    An array that still runs counts from when it was sent.
    """
    rows = Submission.objects.filter(request__in=keys, is_test=False).order_by()
    rows = rows.annotate(again=Sum("retries__tasks", default=0))
    waits = rows.filter(Q(state=SubmissionState.FAILED) | Q(ended__gt=F("completed") + F("again")))
    taken = set(
        StageAcceptance.objects.filter(stage__request__in=keys).values_list("stage__request", "stage__position")
    )
    found: dict[int, datetime] = {}
    since = Coalesce("settled_at", "sending_at", "created_at")
    for request, position, moment in waits.values_list("request", "position", since):
        if (request, position) not in taken:
            found[request] = min(moment, found.get(request, moment))
    return found


STUCK_SINCE.append(stuck_since_of)
