"""Tests of requests: their results, and the move after them; the end of keep-up."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Exists, OuterRef, Q

from apps.clusters.models import Cluster
from apps.core.domain.quantities import round_duration, round_size
from apps.core.errors import DomainError
from apps.datasets.models import FileTotals
from apps.diagnosis.enums import VerdictKind
from apps.diagnosis.models import Verdict
from apps.production.domain.lifecycle.moves import make_move
from apps.production.domain.outlook import Outlook, read_outlook
from apps.production.domain.reasons import MAX_REASON
from apps.production.enums import PORTAL, RequestState, Verb
from apps.production.models import Request
from apps.submission.domain.arrays.files import merge_sources, stages_by_job, takes_files
from apps.submission.domain.arrays.keepup import is_over
from apps.submission.domain.arrays.merging import ended_stages
from apps.submission.domain.arrays.plan import lock_request
from apps.submission.domain.arrays.rows import options_of
from apps.submission.domain.arrays.submissions import (
    jobs_of,
    last_tests,
    stage_submissions_of,
)
from apps.submission.enums import Purpose, SubmissionState
from apps.submission.models import Assignment, Submission

#: How long to wait for the verdict on a failed job, of a test or among the first of a stage.
VERDICT_WITHIN = timedelta(minutes=15)


def evaluate_tests(*, cluster: Cluster, at: datetime) -> list[Request]:
    """Move requests whose tests on a cluster have finished; return those moved.

    If all passed, production starts. A test that failed because of a service is repeated once the
    service is up, as often as failed jobs are retried. Any other failure puts the request on hold,
    with the verdict as reason.
    """
    moved = []
    outlook = read_outlook(at)
    testing = Assignment.objects.filter(cluster=cluster, request__state=RequestState.TESTING)
    for assignment in testing.select_related("request", "cluster"):
        try:
            if _judge(assignment, outlook, at):
                moved.append(assignment.request)
        except DomainError:  # another process or user was faster
            continue
    return moved


def complete_processed_requests(*, cluster: Cluster, at: datetime) -> list[Request]:
    """Complete requests whose number of jobs is not known in advance and whose stages have ended.

    These are keep-up requests after their stop date, and requests that merge files.
    """
    merges = FileTotals.objects.filter(stage__request=OuterRef("request"), source__isnull=False)
    keeps_up = Q(request__arguments__stop_on__isnull=False)
    running = Assignment.objects.filter(cluster=cluster, request__state=RequestState.RUNNING)
    moved = []
    for assignment in running.filter(keeps_up | Exists(merges)).select_related("request"):
        try:
            with transaction.atomic():
                request = lock_request(assignment.request)
                if _is_done(request, at):
                    make_move(verb=Verb.COMPLETE, request=request, by=PORTAL, at=at)
                    moved.append(request)
        except DomainError:  # another process or user was faster
            continue
    return moved


def _is_done(request: Request, at: datetime) -> bool:
    """Return whether all stages have ended, and the stop date has passed if there is one."""
    if takes_files(request) and not is_over(request, at):
        return False
    if not takes_files(request) and not merge_sources(request):
        return False
    by_stage = stage_submissions_of(request)
    return len(ended_stages(request, by_stage, at)) == len(by_stage)


@transaction.atomic
def _judge(assignment: Assignment, outlook: Outlook, at: datetime) -> bool:
    request = lock_request(assignment.request)
    if request.state != RequestState.TESTING:
        return False

    tests = last_tests(request)
    for stage in stages_by_job(request):
        test = tests.get(stage.position)
        if test is None or not test.settled_at or test.answered_at:
            return False
        if not test.completed:
            return _answer(request, test, outlook, at)

    measurements = "; ".join(
        f"{test.stage_name}: {describe_use(test)}" for _, test in sorted(tests.items())
    )
    reason = f"The test passed. {measurements}"
    make_move(verb=Verb.START, request=request, by=PORTAL, at=at, reason=reason[:MAX_REASON])
    return True


def _answer(request: Request, test: Submission, outlook: Outlook, at: datetime) -> bool:
    """Act on a failed test; return whether the request was moved."""
    verdict = verdict_of(test)
    if verdict is None and test.settled_at and at - test.settled_at < VERDICT_WITHIN:
        return False
    failed = request.submissions.filter(
        purpose=Purpose.TEST, position=test.position, completed=0
    ).count()
    is_service = verdict is not None and verdict.verdict == VerdictKind.SERVICE
    again = is_service and failed <= options_of(test.cluster).retries
    if again and verdict and verdict.service and outlook.find_down(verdict.service):
        return False
    Submission.objects.filter(pk=test.pk).update(answered_at=at)
    if again:
        return False
    if verdict:
        why = f"{verdict.verdict} problem: {verdict.summary}"
    else:
        why = "reason unknown."
    reason = f"The test of {test.stage_name} failed, {why}"
    make_move(verb=Verb.HOLD, request=request, by=PORTAL, at=at, reason=reason[:MAX_REASON])
    return True


def verdict_of(test: Submission) -> Verdict | None:
    """Return the verdict on a failed test, if there is one."""
    return (
        Verdict.objects.filter(job__in=list(jobs_of(test).values_list("pk", flat=True)))
        .order_by("-pk")
        .first()
    )


def describe_use(test: Submission) -> str:
    """Return the run time and memory of a test as text."""
    job = jobs_of(test).first()
    if job is None:
        return "unknown"
    if job.max_memory_bytes:
        memory = round_size(job.max_memory_bytes)
    else:
        memory = "memory unknown"
    return f"{round_duration(job.wall_seconds)}, {memory}"


@dataclass(frozen=True)
class TrialResult:
    """The last test of a stage in a word and a sentence; `sign` is the state shown."""

    test: Submission
    sign: str
    word: str
    text: str


def results_of(request: Request) -> list[TrialResult]:
    """Return the last test of each stage that has one, in order."""
    return [_result(test) for _, test in sorted(last_tests(request).items())]


def failed_test(request: Request) -> TrialResult | None:
    """Return the first test that ended and failed, if the last test of a stage did."""
    for _, test in sorted(last_tests(request).items()):
        if test.settled_at and not test.completed:
            return _result(test)
    return None


def _result(test: Submission) -> TrialResult:
    if test.state != SubmissionState.SENT:
        return TrialResult(test, "unknown", test.get_state_display(), test.last_error)
    if not test.settled_at:
        return TrialResult(test, "running", "running", "")
    if test.completed:
        return TrialResult(test, "completed", "good", describe_use(test))
    verdict = verdict_of(test)
    if verdict is None:
        return TrialResult(
            test, "failed", "failed", "Waiting for the verdict." if not test.answered_at else ""
        )

    problem = f"{verdict.verdict} problem: {verdict.summary}"
    if verdict.verdict == VerdictKind.SERVICE and not test.answered_at:
        problem += " The test is repeated once the service is up."
    return TrialResult(test, "failed", "failed", problem)
