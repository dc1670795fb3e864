"""Running requests with failed or refused jobs that need a decision: nothing more is submitted automatically."""

from datetime import datetime, timedelta

from django.db.models import Count, F, Max, Q, QuerySet, Sum
from django.db.models.functions import Coalesce

from apps.production.enums import RequestState
from apps.production.models import Request, StageAcceptance
from apps.submission.enums import SubmissionState
from apps.submission.models import Submission

#: How long to wait for a verdict and an automatic retry before a person is asked.
_MAY_BE_RETRIED = timedelta(minutes=30)


def note_stuck(*, at: datetime, request: int | None = None) -> int:
    """Record since when the jobs of running requests need a decision, or that none does; return how many changed.

    The inbox and the reminders of production read it. `request` is a primary key, to update that one alone.
    """
    requests = Request.objects.all() if request is None else Request.objects.filter(pk=request)
    stuck = _stuck_since(requests.filter(state=RequestState.RUNNING), at)
    known = dict(requests.exclude(jobs_wait_since=None).values_list("pk", "jobs_wait_since"))
    changed = {pk: stuck.get(pk) for pk in stuck.keys() | known.keys() if stuck.get(pk) != known.get(pk)}
    for pk, since in changed.items():
        Request.objects.filter(pk=pk).update(jobs_wait_since=since)
    return len(changed)


def _stuck_since(running: QuerySet[Request], at: datetime) -> dict[int, datetime]:
    """Return since when the first such job of each request waits: since it was refused, or since its array ended.

    An array that still runs counts from its submission. Recent failures may be retried automatically and do not count.
    """
    refused = Q(state=SubmissionState.FAILED)
    rows = Submission.objects.filter(request__in=running, is_test=False).order_by()
    retried = Sum("tasks", filter=Q(retry_of__isnull=False) & ~refused, default=0)
    stages = rows.values("request", "position").annotate(
        left=Sum("ended") - Sum("completed") - retried, refused=Count("pk", filter=refused), last=Max("settled_at")
    )
    failed = Q(left__gt=0, last__lte=at - _MAY_BE_RETRIED)
    accepted = StageAcceptance.objects.filter(stage__request__in=running)
    stuck = set(stages.filter(failed | Q(refused__gt=0)).values_list("request", "position"))
    stuck -= set(accepted.values_list("stage__request", "stage__position"))
    waiting = rows.filter(request__in={request for request, _ in stuck}).annotate(
        again=Sum("retries__tasks", default=0)
    )
    waiting = waiting.filter(refused | Q(ended__gt=F("completed") + F("again")))
    found: dict[int, datetime] = {}
    since = Coalesce("settled_at", "sending_at", "created_at")
    for request, position, moment in waiting.values_list("request", "position", since):
        if (request, position) in stuck:
            found[request] = min(moment, found.get(request, moment))
    return found
