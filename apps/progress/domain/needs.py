"""Requests that need attention: stuck, idle, late, or with a failed test.

The needs are computed from the facts, periodically and after events.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.db.models import Max, Q
from django.utils import timezone
from django.utils.text import get_text_list

from apps.core.models import Event
from apps.diagnosis.enums import JobAdvice, VerdictKind
from apps.diagnosis.models import Verdict
from apps.jobs.domain.totals.totals import stage_sums
from apps.jobs.models import QueueCount
from apps.production.domain.approvals.inbox import find_arrivals
from apps.production.domain.attention import Need, is_news, keep_attention
from apps.production.domain.content.stages import with_stages
from apps.production.domain.forecast import forecast_of
from apps.production.domain.priority.ranks import startable_requests
from apps.production.domain.slack import late_reason, slack_of
from apps.production.enums import CLOSED, PORTAL, AttentionKind, RequestState
from apps.production.models import Attention, Hold, Request, StageAcceptance
from apps.progress.domain.needed_changes import needed_changes
from apps.progress.domain.transitions import SETTLED, all_queues_are_known
from apps.submission.domain.arrays.submissions import index_of, jobs_of, unretried_indices
from apps.submission.domain.dispatch.start import automatic_start_of
from apps.submission.enums import Purpose, SubmissionState
from apps.submission.models import Submission

#: How long a verdict and an automatic retry may take before users must decide.
_MAY_BE_RETRIED = timedelta(minutes=30)
#: How long a request may have no job and no move before it counts as idle.
_QUIET = {
    RequestState.QUEUED: timedelta(days=1),
    RequestState.TESTING: SETTLED,
    RequestState.RUNNING: SETTLED,
    RequestState.COMPLETING: timedelta(days=1),
}
#: How many requests of the queue are examined for what prevents their start.
_MOST_QUEUED = 50


def note_attention(*, at: datetime, request_id: int | None = None) -> int:
    """Store and publish changes of the needs for attention. Return how many requests changed.

    `request_id` limits the update to one request. List, inbox and pages read the stored rows.
    """
    if request_id is None:
        requests = Request.objects.all()
    else:
        requests = Request.objects.filter(pk=request_id)
    open_requests = list(
        requests.exclude(state__in=[*CLOSED, RequestState.DRAFT]).select_related("experiment")
    )

    stored: dict[int, dict[str, Need]] = {}
    rows = Attention.objects.filter(request__in=requests)
    for attention in rows.values_list("request_id", "kind", "since", "words", named=True):
        stored.setdefault(attention.request_id, {})[attention.kind] = Need(
            attention.since, attention.words
        )
    idle = {pk for pk, kinds in stored.items() if AttentionKind.IDLE in kinds}

    current: dict[int, dict[AttentionKind, Need]] = defaultdict(dict)
    for pk, need in _stuck(open_requests, at).items():
        current[pk][AttentionKind.STUCK] = need
    for pk, need in _test_failed(open_requests).items():
        current[pk][AttentionKind.TEST_FAILED] = need
    stuck = [
        request for request in open_requests if AttentionKind.STUCK in current.get(request.pk, {})
    ]
    for pk, need in needed_changes(open_requests, stuck, at).items():
        current[pk][AttentionKind.NEEDS_CHANGE] = need
    for pk, need in _late(open_requests, at).items():
        current[pk][AttentionKind.LATE] = need
    quiet = [
        request
        for request in open_requests
        if not current.get(request.pk, {}).keys() - {AttentionKind.LATE}
    ]
    for pk, need in _idle(quiet, at, idle).items():
        current[pk][AttentionKind.IDLE] = need

    changed = []
    for pk in current.keys() | stored.keys():
        if is_news(stored.get(pk, {}), current.get(pk, {})):
            changed.append(pk)
    concerned = Request.objects.in_bulk(changed)
    return sum(
        keep_attention(request=concerned[pk], needs=current.get(pk, {}), at=at)
        for pk in sorted(concerned)
    )


@dataclass
class _Undecided:
    """The jobs of a request that need a decision; `moments` are since when, one for each array.

    `stages_of_recent` have others, which failed so lately that they may be retried automatically.
    These are not counted here, because the request page counts those that rules will retry.
    """

    failed_jobs: int = 0
    refused_jobs: int = 0
    stages: list[str] = field(default_factory=list)
    stages_of_recent: list[str] = field(default_factory=list)
    moments: list[datetime] = field(default_factory=list)


def _stuck(requests: Iterable[Request], at: datetime) -> dict[int, Need]:
    """Return how many failed or refused jobs of each request need a decision, and since when.

    A job needs a decision since it was refused, or since its array finished; for an array that
    still runs, since its submission. Recent failures may be retried automatically and do not count,
    unless their verdicts exclude a retry.
    """
    of_state = Q(purpose=Purpose.PRODUCTION, request__state=RequestState.RUNNING)
    refused_tests = Q(
        purpose=Purpose.TEST, request__state=RequestState.TESTING, state=SubmissionState.FAILED
    )
    arrays = Submission.objects.filter(
        of_state | refused_tests, request__in=list(requests)
    ).order_by("pk")
    accepted = set(
        StageAcceptance.objects.filter(stage__request__in=arrays.values("request")).values_list(
            "stage__request", "stage__position"
        )
    )
    stages: dict[tuple[int, int], list[Submission]] = {}
    retried_jobs: dict[int, int] = {}
    for array in arrays.defer("script", "asked", "last_error"):
        stages.setdefault((array.request_id, array.position), []).append(array)
        if array.retry_of_id:
            retried_jobs[array.retry_of_id] = retried_jobs.get(array.retry_of_id, 0) + array.tasks

    by_request: dict[int, _Undecided] = {}
    for (request_pk, position), arrays_of_stage in stages.items():
        if (request_pk, position) not in accepted:
            undecided = by_request.setdefault(request_pk, _Undecided())
            _add_undecided(undecided, arrays_of_stage, retried_jobs, at)

    needs = {}
    for pk, undecided in by_request.items():
        if undecided.moments:
            needs[pk] = Need(min(undecided.moments), _decision_text(undecided))
    return needs


def _add_undecided(
    undecided: _Undecided,
    arrays: Sequence[Submission],
    retried_jobs: Mapping[int, int],
    at: datetime,
) -> None:
    """Add the jobs of a stage; `retried_jobs` counts the retried jobs of each array."""
    failed: dict[int, int] = {}
    for array in arrays:
        failed_jobs = array.ended - array.completed - retried_jobs.get(array.pk, 0)
        if failed_jobs > 0:
            failed[array.pk] = failed_jobs
    is_settled = any(array.settled_at for array in arrays)
    if not is_settled:
        failed = {}
    elif any(_may_be_retried(array, at) for array in arrays if array.pk in failed):
        undecided.stages_of_recent.append(arrays[0].stage_name)
        failed = {}

    for array in arrays:
        is_refused = array.state == SubmissionState.FAILED
        if is_refused:
            undecided.refused_jobs += array.tasks
        undecided.failed_jobs += failed.get(array.pk, 0)
        if is_refused or array.pk in failed:
            since = array.settled_at or array.sending_at or array.created_at
            undecided.moments.append(since)
            if array.stage_name not in undecided.stages:
                undecided.stages.append(array.stage_name)


def _may_be_retried(array: Submission, at: datetime) -> bool:
    """Whether failed jobs of an array may still be retried automatically.

    They may if it ended recently and the verdicts allow a retry.
    """
    if array.settled_at is None or array.settled_at <= at - _MAY_BE_RETRIED:
        return False
    final = Verdict.objects.filter(job__in=list(jobs_of(array).values_list("pk", flat=True)))
    final = final.exclude(verdict=VerdictKind.SERVICE, advice=JobAdvice.RETRY)
    decided = {index_of(array, job_id) for job_id in final.values_list("job__job_id", flat=True)}
    return not set(unretried_indices(array)) <= decided


def _decision_text(undecided: _Undecided) -> str:
    parts = []
    for number, word in ((undecided.failed_jobs, "failed"), (undecided.refused_jobs, "refused")):
        if number:
            parts.append(f"{number:,} {word}")
    is_one_job = undecided.failed_jobs + undecided.refused_jobs == 1
    plural = "" if is_one_job else "s"
    stages = get_text_list(undecided.stages, "and")
    jobs = f"{' and '.join(parts)} job{plural} of {stages}"
    text = f"{jobs} need{'s' if is_one_job else ''} a decision"
    if undecided.stages_of_recent:
        recent = get_text_list(undecided.stages_of_recent, "and")
        text += f"; other failed jobs of {recent} may be retried automatically"
    return text


def _test_failed(requests: Iterable[Request]) -> dict[int, Need]:
    """Return the requests whose test failed and that no user has changed or moved since then."""
    states = {RequestState.QUEUED, RequestState.ON_HOLD}
    targets = {}
    for request in requests:
        if request.state in states:
            targets[str(request.pk)] = request.pk
    kinds = Q(new__in=RequestState.values) | Q(kind="request.edited")
    events = Event.objects.filter(
        kinds, target_type=Request._meta.label_lower, target_id__in=targets
    )

    needs = {}
    for newest in events.order_by("target_id", "-id").distinct("target_id"):
        is_held_test = (
            newest.kind == "request.hold"
            and newest.actor == PORTAL
            and newest.old == RequestState.TESTING
        )
        if newest.kind == "request.fail_test" or is_held_test:
            needs[targets[newest.target_id]] = Need(newest.at, newest.reason)
    return needs


def _late(requests: Iterable[Request], at: datetime) -> dict[int, Need]:
    """Return the requests that miss their deadline.

    It has passed, or they are expected to end after it.
    """
    today = timezone.localdate(at)
    late = {}
    for request in requests:
        slack = slack_of(request.deadline, forecast_of(request), today=today)
        if slack is None or not slack.is_late or request.deadline is None:
            continue
        late[request.pk] = Need(at, late_reason(slack, request.deadline, today=today))
    return late


def _idle(requests: Iterable[Request], at: datetime, idle: Collection[int]) -> dict[int, Need]:
    """Return the approved requests that make no progress although nothing prevents it.

    Requests on hold and keep-up requests, which wait for files, are left out. While a cluster does
    not respond, a request without jobs is idle only if it was idle before, as one of `idle`.
    """
    since = _quiet_since([request for request in requests if request.state in _QUIET])
    quiet = []
    for request in requests:
        if request.pk in since and at - since[request.pk] >= _QUIET[RequestState(request.state)]:
            quiet.append(request)
    if not quiet:
        return {}

    holds = set(Hold.objects.filter(lifted_at=None).values_list("experiment_id", "stage__request"))
    busy = set(QueueCount.objects.filter(request__in=quiet).values_list("request_id", flat=True))
    on_its_way = Submission.objects.filter(
        request__in=quiet, cluster__submits=True, state=SubmissionState.PLANNED
    )
    busy |= set(on_its_way.values_list("request_id", flat=True))
    known = all_queues_are_known(at)
    first = startable_requests().filter(
        pk__in=[request.pk for request in quiet if request.state == RequestState.QUEUED]
    )
    automatic_starts = {
        request.pk: automatic_start_of(request, at)
        for request in with_stages(first).select_related("files_check")[:_MOST_QUEUED]
    }

    needs = {}
    for request in quiet:
        # A hold is of all production, of an experiment, or of a stage of a request.
        keys = {(None, None), (request.experiment_id, None), (None, request.pk)}
        if request.pk in busy or keys & holds:
            continue
        if request.state == RequestState.QUEUED:
            start = automatic_starts.get(request.pk)
            if start is None or (start.clusters and not start.obstacle):
                continue
            reason = (
                "approved, nothing submitted. "
                f"{start.obstacle or 'No cluster starts it automatically.'}"
            )
        elif request.state == RequestState.COMPLETING:
            reason = "its jobs have finished, but not all outputs are located"
        elif "stop_on" in request.arguments or not (known or request.pk in idle):
            continue
        else:
            reason = "no job is queued or running, and jobs are missing"
        needs[request.pk] = Need(since[request.pk], reason)
    return needs


def _quiet_since(requests: Collection[Request]) -> dict[int, datetime]:
    """Return the time of the last activity of each request.

    That is a move of the request, or the submission or end of one of its jobs.
    """
    quiet_since = {pk: event.at for pk, event in find_arrivals(requests).items()}
    for pk, stages in stage_sums(requests).items():
        ends = [sums.last_ended_at for sums in stages.values() if sums.last_ended_at]
        if pk in quiet_since:
            quiet_since[pk] = max([quiet_since[pk], *ends])
    sent = Submission.objects.filter(request__in=list(requests)).order_by().values_list("request")
    for pk, last in sent.annotate(last=Max("sent_at")):
        if last is not None and pk in quiet_since:
            quiet_since[pk] = max(quiet_since[pk], last)
    return quiet_since
