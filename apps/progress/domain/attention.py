"""Which requests need attention: stuck, idle, late, or with a failed test. Computed from the facts, again and again."""

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta

from django.db.models import Max, Q
from django.utils import timezone

from apps.core.models import Event
from apps.diagnosis.enums import Advice, VerdictKind
from apps.diagnosis.models import Verdict
from apps.jobs.domain.totals import stage_sums
from apps.jobs.models import QueueCount
from apps.production.domain.approvals.inbox import arrivals
from apps.production.domain.attention import Need, is_news, keep_attention
from apps.production.domain.content.stages import with_stages
from apps.production.domain.forecast import forecast_of
from apps.production.domain.priority.ranks import startable
from apps.production.domain.slack import slack_of
from apps.production.enums import CLOSED, PORTAL, AttentionKind, RequestState
from apps.production.models import Attention, Hold, Request, StageAcceptance
from apps.progress.domain.transitions import SETTLED, all_queues_are_known
from apps.submission.domain.start import begin_of
from apps.submission.domain.submissions import failed_of, index_of, jobs_of
from apps.submission.enums import Purpose, SubmissionState
from apps.submission.models import Submission

#: How long to wait for a verdict and an automatic retry before a person is asked.
_MAY_BE_RETRIED = timedelta(minutes=30)
#: After how long without any job or move a request is idle.
_QUIET = {
    RequestState.QUEUED: timedelta(days=1),
    RequestState.TESTING: SETTLED,
    RequestState.RUNNING: SETTLED,
    RequestState.COMPLETING: timedelta(days=1),
}
#: How many requests of the queue are examined for what prevents their start.
_MOST_QUEUED = 50


def note_attention(*, at: datetime, request: int | None = None) -> int:
    """Store what needs attention, and publish what is new or over; return how many requests changed.

    `request` is a primary key, to update that one alone. List, inbox and pages read the stored rows.
    """
    requests = Request.objects.all() if request is None else Request.objects.filter(pk=request)
    open_ones = list(requests.exclude(state__in=[*CLOSED, RequestState.DRAFT]).select_related("experiment"))
    stored: dict[int, dict[str, Need]] = {}
    for pk, name, since, words in Attention.objects.filter(request__in=requests).values_list(
        "request_id", "kind", "since", "words"
    ):
        stored.setdefault(pk, {})[name] = Need(since, words)
    idle = {pk for pk, kinds in stored.items() if AttentionKind.IDLE in kinds}
    found: dict[int, dict[AttentionKind, Need]] = {}
    for of_kind, needs in (
        (AttentionKind.STUCK, _stuck(open_ones, at)),
        (AttentionKind.TEST_FAILED, _test_failed(open_ones)),
        (AttentionKind.LATE, _late(open_ones, at)),
    ):
        for pk, need in needs.items():
            found.setdefault(pk, {})[of_kind] = need
    quiet = [each for each in open_ones if not found.get(each.pk, {}).keys() - {AttentionKind.LATE}]
    for pk, need in _idle(quiet, at, idle).items():
        found.setdefault(pk, {})[AttentionKind.IDLE] = need
    changed = [pk for pk in found.keys() | stored.keys() if is_news(stored.get(pk, {}), found.get(pk, {}))]
    concerned = Request.objects.in_bulk(changed)
    return sum(keep_attention(request=concerned[pk], needs=found.get(pk, {}), at=at) for pk in sorted(concerned))


def _stuck(requests: Iterable[Request], at: datetime) -> dict[int, Need]:
    """Return how many failed or refused jobs need a decision, and since when the first of them does.

    Since it was refused, or since its array finished; an array that still runs counts from its submission. Recent
    failures may be retried automatically and do not count, unless their verdicts exclude that.
    """
    of_state = Q(purpose=Purpose.PRODUCTION, request__state=RequestState.RUNNING)
    refused_tests = Q(purpose=Purpose.TEST, request__state=RequestState.TESTING, state=SubmissionState.FAILED)
    arrays = Submission.objects.filter(of_state | refused_tests, request__in=list(requests)).order_by("pk")
    accepted = set(
        StageAcceptance.objects.filter(stage__request__in=arrays.values("request")).values_list(
            "stage__request", "stage__position"
        )
    )
    stages: dict[tuple[int, int], list[Submission]] = {}
    again: dict[int, int] = {}
    for array in arrays.defer("script", "asked", "last_error"):
        stages.setdefault((array.request_id, array.position), []).append(array)
        if array.retry_of_id:
            again[array.retry_of_id] = again.get(array.retry_of_id, 0) + array.tasks
    found: dict[int, tuple[int, int, datetime]] = {}
    for stage, mine in stages.items():
        if stage in accepted:
            continue
        refused = [array for array in mine if array.state == SubmissionState.FAILED]
        failed = [array for array in mine if array.ended > array.completed + again.get(array.pk, 0)]
        settled = any(array.settled_at for array in mine)
        if not settled or any(_may_be_retried(array, at) for array in failed):
            failed = []
        counts = sum(a.ended - a.completed - again.get(a.pk, 0) for a in failed), sum(a.tasks for a in refused)
        moments = [array.settled_at or array.sending_at or array.created_at for array in (*failed, *refused)]
        if moments:
            before = found.get(stage[0], (0, 0, moments[0]))
            found[stage[0]] = before[0] + counts[0], before[1] + counts[1], min(before[2], *moments)
    return {pk: Need(since, _decision(failed, refused)) for pk, (failed, refused, since) in found.items()}


def _may_be_retried(array: Submission, at: datetime) -> bool:
    """Whether failed jobs of an array may still be retried automatically: it ended lately, and verdicts allow it."""
    if array.settled_at is None or array.settled_at <= at - _MAY_BE_RETRIED:
        return False
    final = Verdict.objects.filter(job__in=list(jobs_of(array).values_list("pk", flat=True)))
    final = final.exclude(verdict=VerdictKind.SERVICE, advice=Advice.RETRY)
    decided = {index_of(array, job_id) for job_id in final.values_list("job__job_id", flat=True)}
    return not set(failed_of(array)) <= decided


def _decision(failed: int, refused: int) -> str:
    parts = [f"{number:,} {word}" for number, word in ((failed, "failed"), (refused, "refused")) if number]
    return f"{' and '.join(parts)} job{'s need' if failed + refused != 1 else ' needs'} a decision"


def _test_failed(requests: Iterable[Request]) -> dict[int, Need]:
    """Return the requests whose test failed, and that nobody has changed or moved since."""
    targets = {str(each.pk): each.pk for each in requests if each.state in {RequestState.QUEUED, RequestState.ON_HOLD}}
    kinds = Q(new__in=RequestState.values) | Q(kind="request.edited")
    events = Event.objects.filter(kinds, target_type=Request._meta.label_lower, target_id__in=targets)
    return {
        targets[event.target_id]: Need(event.at, event.reason)
        for event in events.order_by("target_id", "-id").distinct("target_id")
        if event.kind == "request.fail_test"
        or (event.kind == "request.hold" and event.actor == PORTAL and event.old == RequestState.TESTING)
    }


def _late(requests: Iterable[Request], at: datetime) -> dict[int, Need]:
    """Return the requests that miss their deadline: it has passed, or they are expected to end after it."""
    today, late = timezone.localdate(at), {}
    for request in requests:
        slack = slack_of(request.deadline, forecast_of(request), today=today)
        if slack is None or not slack.is_late or request.deadline is None:
            continue
        days = f"{slack.days_late:,} day{'s' if slack.days_late != 1 else ''}"
        if today > request.deadline:
            words = f"its deadline {request.deadline:%-d %b %Y} has passed"
            if slack.end is not None and slack.end > request.deadline:
                words += f"; expected to end {days} after it, on {slack.end:%-d %b %Y}"
        else:
            assumption = f" {slack.assumption}" if slack.assumption else ""
            words = f"expected to end on {slack.end:%-d %b %Y}{assumption}, {days} after its deadline"
        late[request.pk] = Need(at, words)
    return late


def _idle(requests: Iterable[Request], at: datetime, idle: Collection[int]) -> dict[int, Need]:
    """Return the approved requests that nothing prevents from progress, but for which nothing happens.

    Held requests are left out, and keep-up requests, which wait for files. While a cluster does not answer, only the
    `idle` ones that are known stay so.
    """
    since = _quiet_since([each for each in requests if each.state in _QUIET])
    quiet = [each for each in requests if each.pk in since and at - since[each.pk] >= _QUIET[RequestState(each.state)]]
    if not quiet:
        return {}
    holds = list(Hold.objects.filter(lifted_at=None).values_list("experiment_id", "stage__request"))
    busy = set(QueueCount.objects.filter(request__in=quiet).values_list("request_id", flat=True))
    on_its_way = Submission.objects.filter(request__in=quiet, cluster__submits=True, state=SubmissionState.PLANNED)
    busy |= set(on_its_way.values_list("request_id", flat=True))
    known = all_queues_are_known(at)
    first = startable().filter(pk__in=[each.pk for each in quiet if each.state == RequestState.QUEUED])
    queued = {each.pk: begin_of(each, at) for each in with_stages(first)[:_MOST_QUEUED]}
    found = {}
    for each in quiet:
        if each.pk in busy or {(None, None), (each.experiment_id, None), (None, each.pk)} & {*holds}:
            continue
        if each.state == RequestState.QUEUED:
            begin = queued.get(each.pk)
            if begin is None or (begin.clusters and not begin.obstacle):
                continue
            words = f"approved, nothing submitted. {begin.obstacle or 'No cluster starts it automatically.'}"
        elif each.state == RequestState.COMPLETING:
            words = "its jobs have finished, but not all outputs are located"
        elif "stop_on" in each.arguments or not (known or each.pk in idle):
            continue
        else:
            words = "no job is queued or running, and jobs are missing"
        found[each.pk] = Need(since[each.pk], words)
    return found


def _quiet_since(requests: Collection[Request]) -> dict[int, datetime]:
    """Return when something happened last for each request: it was moved, or a job of it was submitted or finished."""
    found = {pk: event.at for pk, event in arrivals(requests).items()}
    for pk, stages in stage_sums(requests).items():
        ends = [sums.last_ended_at for sums in stages.values() if sums.last_ended_at]
        if pk in found:
            found[pk] = max([found[pk], *ends])
    sent = Submission.objects.filter(request__in=list(requests)).order_by().values_list("request")
    for pk, last in sent.annotate(last=Max("sent_at")):
        if last is not None and pk in found:
            found[pk] = max(found[pk], last)
    return found
