"""Choosing the cluster of a request, planning what is sent next, sending failed jobs again."""

from datetime import datetime

from django.db import transaction
from django.db.models import Max

from apps.accounts.models import User
from apps.clusters.models import Cluster
from apps.clusters.schedulers.base import SchedulerError
from apps.core.errors import InvalidFields, InvalidTransition, NotAllowed
from apps.core.queue import enqueue
from apps.core.services import publish
from apps.diagnosis.enums import VerdictKind
from apps.production.enums import RequestState, Verb
from apps.production.holds import hold_of
from apps.production.models import Request
from apps.production.selectors import with_stages
from apps.production.services import MAX_REASON, make_move
from apps.submission.batch import adapter_that_submits, new_submission, options_of, plans_of
from apps.submission.enums import SubmissionState
from apps.submission.models import Assignment, Submission
from apps.submission.selectors import ASSIGNABLE, SENDABLE, failed_of, may_submit

#: The moves that may come with the choice of a cluster.
BEGINNINGS = {Verb.TEST, Verb.START}


@transaction.atomic
def assign_request(
    *,
    request: Request,
    cluster: Cluster,
    by: User,
    at: datetime,
    verb: Verb | None = None,
    most_in_flight: int | None = None,
    reason: str = "",
    version: int | None = None,
) -> Assignment:
    """Let the portal send the jobs of a request to a cluster, and make the move `verb` along with it.

    Raises `NotAllowed`, `InvalidTransition`, `InvalidFields` with what prevents a stage from being sent, `StaleState`.
    """
    _check_allowed(by, request)
    request = _locked(request)
    if request.state not in ASSIGNABLE:
        raise InvalidTransition(f"{request} is “{request.get_state_display()}”: no jobs can be sent for it.")
    _check_cluster(cluster, request)
    plans_of(request)
    if verb:
        if verb not in BEGINNINGS:
            raise InvalidFields({"verb": ["Start with a test, or with production."]})
        make_move(verb=verb, request=request, by=by, at=at, reason=reason, version=version)
    limit = most_in_flight or _wished_limit(request)
    assignment, _ = Assignment.objects.update_or_create(
        request=request,
        defaults={"cluster": cluster, "most_in_flight": limit, "assigned_at": at, "assigned_by": str(by)},
    )
    publish(
        kind="submission.assigned",
        target=request,
        by=by,
        at=at,
        new=cluster.name,
        reason=reason.strip(),
        data={"cluster": cluster.name, "most_in_flight": limit},
    )
    enqueue("apps.submission.tasks.send_to", cluster_id=cluster.pk)
    return assignment


@transaction.atomic
def plan_next(*, assignment: Assignment, at: datetime) -> Submission | None:
    """Plan the next array of a request, if one is due: of the first stage that is not yet delivered.

    While it is in test, one job of each stage. A stage begins when every job of the one before has completed.
    Raises `InvalidFields` where the stage cannot run, `SchedulerError` for wrong options of the cluster.
    """
    request = _locked(assignment.request)
    cluster = assignment.cluster
    if request.state not in SENDABLE or not cluster.submits:
        return None
    sent = list(request.submissions.defer("script"))
    for stage in request.stages.all():
        of_stage = [submission for submission in sent if submission.position == stage.position]
        if {s.state for s in of_stage} & {SubmissionState.PLANNED, SubmissionState.FAILED}:
            return None
        wanted = 1 if request.state == RequestState.TESTING else stage.jobs or 0
        first = max((s.first + s.tasks for s in of_stage if s.retry_of_id is None), default=0)
        if first < wanted or not wanted:
            if hold_of(request, stage):
                return None
            most = options_of(cluster)
            size = min(most.array_size, most.most_in_flight, assignment.most_in_flight or most.array_size)
            plan = plans_of(request)[stage.position]
            submission = new_submission(
                request=request,
                cluster=cluster,
                plan=plan,
                number=_next_number(request),
                first=first,
                tasks=min(size, wanted - first),
                by="opsportal",
                at=at,
            )
            return _save(submission, at)
        if sum(s.completed for s in of_stage) < wanted:
            return None
    return None


@transaction.atomic
def retry_failed(
    *, request: Request, position: int, by: User, at: datetime, verdict: str = "", reason: str = ""
) -> list[Submission]:
    """Plan once more the jobs of a stage that did not complete; with a verdict, those that it was passed on.

    Raises `NotAllowed`, `InvalidFields`, `InvalidTransition` where there is nothing to send again.
    """
    _check_allowed(by, request)
    request = _locked(request)
    if verdict and verdict not in set(VerdictKind):
        raise InvalidFields({"verdict": [f"One of: {', '.join(VerdictKind)}; or empty for all."]})
    _check_reason(reason)
    if request.state not in SENDABLE:
        raise InvalidTransition(f"{request} is “{request.get_state_display()}”: no jobs can be sent for it.")
    found: list[Submission] = []
    plans = plans_of(request)
    for submission in request.submissions.filter(position=position).prefetch_related("retries").select_related():
        if indices := failed_of(submission, verdict=verdict):
            _check_cluster(submission.cluster, request)
            again = new_submission(
                request=request,
                cluster=submission.cluster,
                plan=plans[position],
                number=_next_number(request),
                indices=indices,
                retry_of=submission,
                by=by,
                at=at,
            )
            found.append(_save(again, at, reason=reason.strip()))
    if not found:
        raise InvalidTransition(f"{request}: no failed job of this stage is there to be sent again.")
    for cluster_id in {submission.cluster_id for submission in found}:
        enqueue("apps.submission.tasks.send_to", cluster_id=cluster_id)
    return found


@transaction.atomic
def send_refused_again(*, submission: Submission, by: User, at: datetime, reason: str = "") -> Submission:
    """Plan once more what the scheduler refused, as it is.

    Raises `NotAllowed`, `InvalidFields`, `InvalidTransition`.
    """
    _check_allowed(by, submission.request)
    _check_reason(reason)
    changed = Submission.objects.filter(pk=submission.pk, state=SubmissionState.FAILED).update(
        state=SubmissionState.PLANNED, due_at=at, attempts=0
    )
    if not changed:
        raise InvalidTransition(f"{submission} was not refused, or somebody has sent it again already.")
    submission.refresh_from_db()
    _tell("submission.planned_again", submission, by, at, reason=reason.strip())
    enqueue("apps.submission.tasks.send_to", cluster_id=submission.cluster_id)
    return submission


def _save(submission: Submission, at: datetime, *, reason: str = "") -> Submission:
    submission.save(force_insert=True)
    _tell("submission.planned", submission, submission.created_by, at, reason=reason)
    return submission


def _tell(kind: str, submission: Submission, by: object, at: datetime, *, reason: str = "") -> None:
    data = {
        "submission": submission.number,
        "stage": submission.stage_name,
        "cluster": submission.cluster.name,
        "first": submission.first,
        "tasks": submission.tasks,
        "retry_of": submission.retry_of.number if submission.retry_of else None,
        "script_sha256": submission.script_sha256,
    }
    publish(kind=kind, target=submission.request, by=by, at=at, new=submission.state, reason=reason, data=data)


def _locked(request: Request) -> Request:
    """Hold the request's row, so that one alone plans for it, and read it anew."""
    Request.objects.select_for_update().get(pk=request.pk)
    found: Request = with_stages(Request.objects.filter(pk=request.pk)).get()
    return found


def _next_number(request: Request) -> int:
    return (request.submissions.aggregate(last=Max("number"))["last"] or 0) + 1


def _wished_limit(request: Request) -> int | None:
    """Return the most jobs in flight that the request itself asks for, as keep-up does."""
    wished = request.arguments.get("most_in_flight")
    return wished if isinstance(wished, int) and wished > 0 else None


def _check_allowed(by: User, request: Request) -> None:
    if not may_submit(by, request):
        raise NotAllowed("Only an approver or a shifter of the OPG may send jobs.")


def _check_cluster(cluster: Cluster, request: Request) -> None:
    if not cluster.submits:
        raise InvalidTransition(f"The portal sends no jobs to {cluster}: an admin can switch that on.")
    try:
        adapter_that_submits(cluster)
        options_of(cluster)
    except SchedulerError as error:
        raise InvalidTransition(str(error)) from error


def _check_reason(reason: str) -> None:
    if len(reason) > MAX_REASON or "\0" in reason:
        raise InvalidFields({"reason": [f"At most {MAX_REASON:,} characters, none of them NUL."]})
