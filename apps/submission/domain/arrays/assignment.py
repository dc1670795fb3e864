"""Choose the cluster of a request, submit refused jobs again, and cancel submitted jobs."""

from datetime import datetime

from django.db import transaction

from apps.accounts.models import Principal, User
from apps.clusters.models import Cluster
from apps.clusters.schedulers.base import SchedulerError
from apps.core.domain.background import enqueue
from apps.core.domain.events import publish
from apps.core.errors import InvalidFields, InvalidTransition
from apps.production.domain.lifecycle.moves import make_move
from apps.production.domain.outputs.acceptance import acceptance_of
from apps.production.domain.reasons import checked_reason
from apps.production.enums import Verb
from apps.production.models import Request
from apps.submission.domain.arrays.files import check_files
from apps.submission.domain.arrays.plan import lock_request
from apps.submission.domain.arrays.rows import adapter_that_submits, options_of, plans_of
from apps.submission.domain.arrays.submissions import (
    ASSIGNABLE,
    check_may_submit,
    is_cancellable,
    publish_event,
    requested_limit,
)
from apps.submission.enums import Purpose, SubmissionState
from apps.submission.models import Assignment, Submission

#: Moves that can be made along with the choice of a cluster.
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
    """Assign a request to the cluster to which the portal submits its jobs, and apply `verb`.

    Raises `NotAllowed`, `InvalidTransition`, `StaleState`, and `InvalidFields` for stages that
    cannot run.
    """
    check_may_submit(by, request)
    reason = checked_reason(reason, needed=False)
    _check_assignable(request, cluster)
    check_files(request)  # the catalogue is asked before the lock
    request = lock_request(request)
    _check_assignable(request, cluster)
    if verb:
        if verb not in BEGINNINGS:
            raise InvalidFields({"verb": ["Start with a test, or with production."]})
        make_move(verb=verb, request=request, by=by, at=at, reason=reason, version=version)
    assignment = choose_cluster(
        request=request, cluster=cluster, by=by, at=at, most_in_flight=most_in_flight, reason=reason
    )
    enqueue("submission.send_to", cluster_id=cluster.pk)
    return assignment


def _check_assignable(request: Request, cluster: Cluster) -> None:
    if request.state not in ASSIGNABLE:
        raise InvalidTransition(
            f"{request} is “{request.get_state_display()}”: no jobs can be sent for it."
        )
    check_cluster(cluster, request)
    plans_of(request)


def choose_cluster(
    *,
    request: Request,
    cluster: Cluster,
    by: Principal,
    at: datetime,
    most_in_flight: int | None = None,
    reason: str = "",
) -> Assignment:
    """Store the cluster of a request.

    The caller holds the lock on the request and has checked both.
    """
    limit = most_in_flight or requested_limit(request)
    assignment, _ = Assignment.objects.update_or_create(
        request=request,
        defaults={
            "cluster": cluster,
            "most_in_flight": limit,
            "assigned_at": at,
            "assigned_by": str(by),
        },
    )
    data = {"cluster": cluster.name, "most_in_flight": limit}
    publish(
        kind="submission.assigned",
        target=request,
        by=by,
        at=at,
        new=cluster.name,
        reason=reason,
        data=data,
    )
    return assignment


@transaction.atomic
def cancel_sent(*, request: Request, by: User, at: datetime, reason: str) -> int:
    """Cancel all submitted jobs of a request; return how many. Planned arrays stay.

    Raises `NotAllowed`, `InvalidFields` for a missing reason, `InvalidTransition` if there are
    none.
    """
    check_may_submit(by, request)
    reason = checked_reason(reason)
    request = lock_request(request)
    submissions = list(request.submissions.filter(is_cancellable()).select_related("cluster"))
    if not submissions:
        raise InvalidTransition(f"{request} has no jobs in a scheduler.")

    jobs = 0
    ids = []
    numbers = []
    clusters = set()
    for submission in submissions:
        jobs += submission.tasks - submission.ended
        ids.append(submission.pk)
        numbers.append(submission.number)
        clusters.add(submission.cluster_id)

    request.submissions.filter(pk__in=ids).update(cancel_requested_at=at)
    data = {"jobs": jobs, "submissions": numbers}
    publish(kind="submission.cancel_asked", target=request, by=by, at=at, reason=reason, data=data)
    for cluster_id in clusters:
        enqueue("submission.send_to", cluster_id=cluster_id)
    return jobs


@transaction.atomic
def send_refused_again(
    *, submission: Submission, by: User, at: datetime, reason: str = ""
) -> Submission:
    """Plan a refused array again, unchanged.

    Raises `NotAllowed`, `InvalidFields`, `InvalidTransition`.
    """
    check_may_submit(by, submission.request)
    reason = checked_reason(reason, needed=False)
    if submission.purpose == Purpose.PRODUCTION:
        check_not_accepted(lock_request(submission.request), submission.position)
    changed = Submission.objects.filter(pk=submission.pk, state=SubmissionState.FAILED).update(
        state=SubmissionState.PLANNED, due_at=at, attempts=0
    )
    if not changed:
        raise InvalidTransition(f"{submission} was not refused, or is already submitted again.")
    submission.refresh_from_db()
    publish_event("submission.planned_again", submission, at, by=by, reason=reason)
    enqueue("submission.send_to", cluster_id=submission.cluster_id)
    return submission


def check_not_accepted(request: Request, position: int) -> None:
    """Raise `InvalidTransition` if a stage was accepted as is."""
    if taken := acceptance_of(request, position):
        raise InvalidTransition(
            f"{request}: {taken.by} accepted {taken.stage.name} as is. Revoke that first."
        )


def check_cluster(cluster: Cluster, request: Request) -> None:
    """Raise `InvalidTransition` if no jobs can be submitted to a cluster."""
    if not cluster.submits:
        raise InvalidTransition(
            f"Submission to {cluster} is switched off. An admin can switch it on."
        )
    try:
        adapter_that_submits(cluster)
        options_of(cluster)
    except SchedulerError as error:
        raise InvalidTransition(str(error)) from error
