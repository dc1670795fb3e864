"""Change the limit of concurrent jobs of a request, and split planned arrays that exceed it."""

import logging
from dataclasses import replace
from datetime import datetime

from django.db import transaction
from django.db.models import Exists, F, OuterRef

from apps.accounts.models import User
from apps.clusters.models import Cluster
from apps.core.domain.background import enqueue
from apps.core.domain.events import publish
from apps.core.errors import InvalidFields, InvalidTransition, StaleState
from apps.production.domain.reasons import reason_problems
from apps.production.enums import RequestState
from apps.production.models import Request
from apps.submission.domain.arrays.changed_resources import ResourceChanges
from apps.submission.domain.arrays.files import takes_files
from apps.submission.domain.arrays.plan import lock_request, plan_jobs
from apps.submission.domain.arrays.rows import NewArray, new_submission, plans_of
from apps.submission.domain.arrays.submissions import (
    ASSIGNABLE,
    SENDABLE,
    assignment_of,
    check_may_submit,
    indices_of,
    publish_event,
)
from apps.submission.enums import SubmissionState
from apps.submission.models import Assignment, Submission

log = logging.getLogger(__name__)

#: States in which the limit can be changed.
LIMITABLE = ASSIGNABLE | {RequestState.ON_HOLD}
MAX_LIMIT = 1_000_000


@transaction.atomic
def set_limit(
    *,
    request: Request,
    most_in_flight: int | None,
    by: User,
    at: datetime,
    reason: str,
    was: int | None = None,
) -> Assignment:
    """Set the limit of queued and running jobs of a request; None is no limit.

    Jobs in the scheduler stay.

    `was` is the limit that the user saw, 0 for none. Raises `NotAllowed`, `InvalidFields`,
    `InvalidTransition` if the portal does not submit its jobs, `StaleState` if the limit has
    changed.
    """
    check_may_submit(by, request)
    request = lock_request(request)
    reason = reason.strip()
    _check_limit(request, most_in_flight, reason)
    assignment = assignment_of(request)
    if assignment is None or request.state not in LIMITABLE:
        without_cluster = "" if assignment else " and has no cluster"
        raise InvalidTransition(
            f"{request} is “{request.get_state_display()}”{without_cluster}: it has no jobs "
            "to limit."
        )

    before = assignment.most_in_flight
    if was is not None and was != (before or 0):
        raise StaleState(
            f"The job limit was changed meanwhile to {_describe_limit(before)}. Nothing was "
            "overwritten."
        )
    if before == most_in_flight:
        raise InvalidFields(
            {"most_in_flight": [f"The limit is already {_describe_limit(before)}."]}
        )

    assignment.most_in_flight = most_in_flight
    assignment.save(update_fields=["most_in_flight"])
    publish(
        kind="submission.limit_set",
        target=request,
        by=by,
        at=at,
        old=_describe_limit(before),
        new=_describe_limit(most_in_flight),
        reason=reason,
        data={
            "cluster": assignment.cluster.name,
            "old": before,
            "most_in_flight": most_in_flight,
        },
    )
    enqueue("submission.send_to", cluster_id=assignment.cluster_id)
    return assignment


def _check_limit(request: Request, most_in_flight: int | None, reason: str) -> None:
    problems = reason_problems(reason)
    if most_in_flight is None and takes_files(request):
        problems["most_in_flight"] = [
            "Jobs made of files as they arrive need a limit, to protect storage."
        ]
    if most_in_flight is not None and not 1 <= most_in_flight <= MAX_LIMIT:
        problems["most_in_flight"] = [
            f"Enter 1 to {MAX_LIMIT:,}. To stop submissions, put the request on hold."
        ]
    if problems:
        raise InvalidFields(problems)


def split_large_arrays(*, cluster: Cluster, at: datetime) -> list[Submission]:
    """Split planned arrays that exceed the limit of their request; return the first parts.

    The second part is split later, once no other part waits.
    """
    planned = Submission.objects.filter(
        cluster=cluster, state=SubmissionState.PLANNED, request__state__in=SENDABLE
    )
    limit = F("request__assignment__most_in_flight")
    parts = planned.filter(request=OuterRef("request"), tasks__lte=limit)
    larger = (
        planned.filter(~Exists(parts), tasks__gt=limit)
        .order_by("request", "number")
        .distinct("request")
    )

    first_parts = []
    for pk in larger.values_list("pk", flat=True):
        first_part = _cut(pk, at)
        if first_part is not None:
            first_parts.append(first_part)
    return first_parts


@transaction.atomic
def _cut(pk: int, at: datetime) -> Submission | None:
    """Split an array in two and return the first part.

    Return None if the array is submitted, is small enough, or has no valid script.
    """
    request = lock_request(Submission.objects.select_related("request").get(pk=pk).request)
    submissions = Submission.objects.select_for_update(of=("self",)).select_related(
        "cluster", "retry_of"
    )
    submission = submissions.filter(pk=pk, state=SubmissionState.PLANNED).first()
    limit = (
        Assignment.objects.filter(request=request).values_list("most_in_flight", flat=True).first()
    )
    if submission is None or not limit or submission.tasks <= limit:
        return None
    submission.request = request
    numbers = indices_of(submission)
    try:
        plan = plans_of(request, job=submission.first)[submission.position]
    except InvalidFields as error:
        log.warning("%s cannot be cut: %s", submission, error)
        return None
    array = NewArray(
        request=request,
        cluster=submission.cluster,
        plan=plan,
        retry_of=submission.retry_of,
        changes=ResourceChanges.read(submission.changes),
    )
    by = submission.created_by
    first = new_submission(
        _with_jobs(array, submission, numbers[:limit]),
        number=submission.number,
        by=by,
        at=at,
    )
    changed = ("token", "script", "script_sha256", "tasks", "indices")
    for name in changed:
        setattr(submission, name, getattr(first, name))
    submission.save(update_fields=changed)
    publish_event("submission.cut", submission, at, reason=f"No more than {limit:,} jobs at once.")
    plan_jobs(
        _with_jobs(array, submission, numbers[limit:]),
        by=by,
        at=at,
        reason=f"The rest of array {submission.number}.",
    )
    return submission


def _with_jobs(array: NewArray, submission: Submission, numbers: list[int]) -> NewArray:
    """Return the array with some of the jobs of a submission, numbered as they are there."""
    if submission.indices:
        return replace(array, indices=numbers)
    return replace(array, first=numbers[0], tasks=len(numbers))


def _describe_limit(limit: int | None) -> str:
    return "no limit" if limit is None else f"{limit:,}"
