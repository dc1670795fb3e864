"""The status of a request, and who must act next."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain

from django.utils.text import capfirst, get_text_list

from apps.accounts.enums import Role
from apps.accounts.models import User
from apps.clusters.models import Cluster
from apps.core.models import Event
from apps.portal.pages.request.earlier_end import EndingChange
from apps.portal.pages.request.plan import Plan
from apps.production.domain.approvals.requirements import Approval
from apps.production.domain.approvals.waits import WAIT_KINDS, urgency_key
from apps.production.domain.forecast import last_stage
from apps.production.domain.requests.status import RequestStatus, status_of
from apps.production.enums import CLOSED, AttentionKind, RequestState
from apps.production.models import Attention, Request
from apps.progress.domain.expected_end import is_done
from apps.progress.domain.progress import RequestNow, StageNow
from apps.submission.domain.arrays.submissions import assignment_of, may_submit
from apps.submission.domain.arrays.trials import TrialResult, failed_test
from apps.submission.domain.dispatch.start import automatic_clusters

#: States in which someone can choose the cluster that gets the jobs of a request.
_STARTABLE = (RequestState.QUEUED, RequestState.TESTING, RequestState.RUNNING)


@dataclass(frozen=True)
class NextTurn:
    """The status of a request, who must act next, and whether it waits for a cluster.

    `failed_test` is the failed test of a request under test, `starts_by_itself` whether a cluster
    starts a queued request.
    """

    status: RequestStatus
    next_by: str
    lacks_cluster: bool
    failed_test: TrialResult | None = None
    starts_by_itself: bool = True


def next_turn(
    request: Request,
    user: User,
    *,
    plan: Plan,
    events: Sequence[Event],
    attention: Sequence[Attention],
    progress: RequestNow | None,
    changes: Sequence[EndingChange],
) -> NextTurn:
    """Return the status and who must act next. `changes` would end the request earlier.

    The status follows from state and attention. More exact ones replace it, the last one that
    applies: a missing cluster, a needed change, the stage that makes the request late, a failed
    test. A needed change comes after trouble; an idle request waits for it.
    """
    troubles = kinds_of(attention) - {AttentionKind.LATE}
    without_cluster = not troubles - {AttentionKind.IDLE} and waits_for_cluster(request, progress)
    starts_by_itself = request.state != RequestState.QUEUED or bool(automatic_clusters(request))
    status = status_of(
        request,
        events,
        user,
        attention=attention,
        to_sign=bool(plan.approval.mine),
        starts_by_itself=starts_by_itself,
        waits_for=plan.advice.waits_for if plan.advice else "",
    )
    whose_turn = next_by(
        request,
        plan.approval,
        attention,
        starts_by_itself=starts_by_itself,
        waits_for_cluster=without_cluster,
    )

    if without_cluster:
        status = _status_without_cluster(request, user, status)
    if plan.needed_changes and not troubles - {AttentionKind.IDLE, AttentionKind.NEEDS_CHANGE}:
        status = _status_before_change(attention, status)
        whose_turn = f"liaisons of {request.experiment}"
    if status.is_late and request.state == RequestState.RUNNING and progress is not None:
        if stage := stage_that_ends_last(progress):
            status = replace(status, next_step=_step_of_late(stage, request, changes))
    failed = failed_test(request) if request.state == RequestState.TESTING else None
    if failed and not troubles:
        status = _status_of_test(failed, status)
    return NextTurn(status, whose_turn, without_cluster, failed, starts_by_itself)


def _status_without_cluster(request: Request, user: User, status: RequestStatus) -> RequestStatus:
    step = "Choose a cluster, or submit its jobs by hand."
    if not may_submit(user, request):
        step = "Approvers and shifters choose a cluster, or submit its jobs by hand."
    return replace(status, answer="Started, but no cluster is chosen.", next_step=step)


def _status_before_change(attention: Sequence[Attention], status: RequestStatus) -> RequestStatus:
    marked_at = [need.since for need in attention if need.kind == AttentionKind.NEEDS_CHANGE]
    return replace(
        status,
        answer="Needs a change before it starts.",
        next_step="",
        since=marked_at[0] if marked_at else None,
        is_late=False,
    )


def _status_of_test(failed: TrialResult, status: RequestStatus) -> RequestStatus:
    return replace(
        status,
        answer=f"The test of {failed.test.stage_name} failed.",
        next_step=capfirst(failed.text) or status.next_step,
    )


def next_by(
    request: Request,
    approval: Approval,
    attention: Sequence[Attention],
    *,
    starts_by_itself: bool = True,
    waits_for_cluster: bool = False,
) -> str:
    """Return who must act next on a request. Empty once it is closed.

    `starts_by_itself` is whether a cluster starts it once it is queued.
    """
    state = RequestState(request.state)
    if state in CLOSED:
        return ""
    if state == RequestState.AWAITING_APPROVAL:
        names = dict.fromkeys(chain.from_iterable(slot.people for slot in approval.missing))
        return ", ".join(list(names)[:3]) or "approvers"

    if waits_for_cluster or (state == RequestState.QUEUED and not starts_by_itself):
        return "approvers and shifters"
    waits = [wait for wait in WAIT_KINDS if wait in {state, *kinds_of(attention)}]
    roles: dict[Role, None] = {}  # in order, each once
    if waits:
        most_urgent = min(waits, key=urgency_key)
        roles |= dict.fromkeys(WAIT_KINDS[most_urgent].roles)
    if AttentionKind.NEEDS_CHANGE in waits:
        roles |= dict.fromkeys(WAIT_KINDS[AttentionKind.NEEDS_CHANGE].roles)
    named = {
        Role.LIAISON: f"liaisons of {request.experiment}",
        Role.APPROVER: "approvers",
        Role.SHIFTER: "shifters",
    }
    return get_text_list([named[role] for role in roles], "and") or "the portal"


def kinds_of(attention: Sequence[Attention]) -> set[str]:
    return {need.kind for need in attention}


def lacks_cluster(request: Request) -> bool:
    """Whether the portal would submit the jobs of a request, if a cluster was chosen for it."""
    if request.state not in _STARTABLE or assignment_of(request) is not None:
        return False
    return Cluster.objects.filter(submits=True).exists()


def waits_for_cluster(request: Request, progress: RequestNow | None) -> bool:
    """Whether a started request cannot get jobs because no cluster is chosen.

    Once it has a job, its jobs are submitted by hand.
    """
    if request.state not in (RequestState.TESTING, RequestState.RUNNING) or progress is None:
        return False
    for stage in progress.stages:
        if stage.progress.ended or (stage.waiting and stage.waiting.all):
            return False
    return lacks_cluster(request)


def stage_that_ends_last(progress: RequestNow) -> StageNow | None:
    """Return the stage that sets the end of a request; None if all its stages are done.

    A stage without a known end comes first, because it leaves the end of the request unknown.
    """
    stages = {}
    for stage in progress.stages:
        if not stage.progress.requested_stage or is_done(stage.progress, stage.acceptance):
            continue
        if stage.expected.at is None:
            return stage
        stages[stage.progress.stage] = stage
    last = last_stage({name: stage.expected for name, stage in stages.items()})
    return stages.get(last)


def _step_of_late(stage: StageNow, request: Request, changes: Sequence[EndingChange]) -> str:
    """Return what sets the end of a late request that runs, and what would help."""
    if stage.expected.at is None:
        sentences = [
            f"{stage.progress.stage} sets its end, which is unknown: {stage.expected.basis}."
        ]
    else:
        sentences = [f"{stage.progress.stage} ends last: {stage.expected.basis}."]
    failed = stage.failed_now
    if failed:
        jobs = f"{failed:,} failed job{'s are' if failed != 1 else ' is'}"
        sentences.append(f"Its {jobs} not queued again: retry or continue without them.")
    if changes:
        sentences.append(
            "Below is what else would help." if failed else "Below is what would help."
        )
    elif not failed:
        liaisons = f"liaisons of {request.experiment}"
        sentences.append(f"Nothing holds its jobs, but {liaisons} can postpone its deadline.")
    return " ".join(sentences)
