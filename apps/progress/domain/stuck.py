"""Running requests whose jobs wait for a person: they failed, or were refused, and nothing more is sent by itself."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from django.db.models import Count, F, Max, Q, QuerySet, Sum
from django.db.models.functions import Coalesce

from apps.production.enums import RequestState
from apps.production.models import Request, StageAcceptance
from apps.submission.enums import SubmissionState
from apps.submission.models import Submission

#: So long a verdict and the next turn are waited for before a person is.
_MAY_BE_SENT_AGAIN = timedelta(minutes=30)


def note_stuck(*, at: datetime, request: int | None = None) -> int:
    """Note on requests since when their jobs wait for a person, and where none does any more; return how many changed.

    Inbox and reminders of production go by it. With `request`, a primary key, of that one alone.
    """
    requests = Request.objects.all() if request is None else Request.objects.filter(pk=request)
    stuck = _stuck_since(_stuck_requests(requests, at))
    known = dict(requests.exclude(jobs_wait_since=None).values_list("pk", "jobs_wait_since"))
    changed = {pk: stuck.get(pk) for pk in stuck.keys() | known.keys() if stuck.get(pk) != known.get(pk)}
    for pk, since in changed.items():
        Request.objects.filter(pk=pk).update(jobs_wait_since=since)
    return len(changed)


def _stuck_requests(requests: QuerySet[Request], at: datetime) -> set[int]:
    """Keep the running requests with jobs that failed, or were refused, and wait for a person.

    What has just failed may be sent again by itself, and is left out for a while.
    """
    refused = Q(state=SubmissionState.FAILED)
    again = Sum("tasks", filter=Q(retry_of__isnull=False) & ~refused, default=0)
    running = requests.filter(state=RequestState.RUNNING)
    rows = Submission.objects.filter(request__in=running, is_test=False).order_by()
    sums = rows.values("request", "position").annotate(
        left=Sum("ended") - Sum("completed") - again, refused=Count("pk", filter=refused), last=Max("settled_at")
    )
    failed = Q(left__gt=0, last__lte=at - _MAY_BE_SENT_AGAIN)
    found = sums.filter(failed | Q(refused__gt=0)).values_list("request", "position")
    taken = StageAcceptance.objects.filter(stage__request__in=running)
    return {request for request, _ in set(found) - set(taken.values_list("stage__request", "stage__position"))}


def _stuck_since(requests: Iterable[int]) -> dict[int, datetime]:
    """Return since when the first of the jobs of these requests waits for a person: it was refused, or its array ended.

    An array that still runs counts from when it was sent.
    """
    rows = Submission.objects.filter(request__in=requests, is_test=False).order_by()
    rows = rows.annotate(again=Sum("retries__tasks", default=0))
    waits = rows.filter(Q(state=SubmissionState.FAILED) | Q(ended__gt=F("completed") + F("again")))
    taken = set(
        StageAcceptance.objects.filter(stage__request__in=requests).values_list("stage__request", "stage__position")
    )
    found: dict[int, datetime] = {}
    since = Coalesce("settled_at", "sending_at", "created_at")
    for request, position, moment in waits.values_list("request", "position", since):
        if (request, position) not in taken:
            found[request] = min(moment, found.get(request, moment))
    return found
