"""The most jobs of a request at once: changed by the OPG while it runs, and kept by what was planned before."""

import logging
from datetime import datetime
from typing import Any

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
from apps.submission.domain.arrays import new_submission, plans_of
from apps.submission.domain.keepup import takes_files
from apps.submission.domain.plan import locked, plan_jobs
from apps.submission.domain.submissions import (
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

#: The limit can be changed while the request is here.
LIMITABLE = ASSIGNABLE | {RequestState.ON_HOLD}
MAX_LIMIT = 1_000_000


@transaction.atomic
def set_limit(
    *, request: Request, most_in_flight: int | None, by: User, at: datetime, reason: str, was: int | None = None
) -> Assignment:
    """Let no more jobs of a request than these wait and run together, from the next turn on; None is no limit.

    What is with the scheduler stays. `was` is what the person saw, 0 for no limit. Raises `NotAllowed`,
    `InvalidFields`, `InvalidTransition` where the portal does not send its jobs, `StaleState` where it is not so now.
    """
    check_may_submit(by, request)
    request = locked(request)
    text = _checked(request, most_in_flight, reason)
    assignment = assignment_of(request)
    if assignment is None or request.state not in LIMITABLE:
        raise InvalidTransition(
            f"{request} is “{request.get_state_display()}”{'' if assignment else ', and no cluster is chosen for it'}:"
            " there are no jobs of it to be limited."
        )
    before = assignment.most_in_flight
    if was is not None and was != (before or 0):
        raise StaleState(
            f"The most jobs at once were changed meanwhile: {_words(before)} now. Nothing was overwritten."
        )
    if before == most_in_flight:
        raise InvalidFields({"most_in_flight": [f"It is so already: {_words(before)}."]})
    assignment.most_in_flight = most_in_flight
    assignment.save(update_fields=["most_in_flight"])
    data = {"cluster": assignment.cluster.name, "old": before, "most_in_flight": most_in_flight}
    old, new = _words(before), _words(most_in_flight)
    publish(kind="submission.limit_set", target=request, by=by, at=at, old=old, new=new, reason=text, data=data)
    enqueue("apps.submission.tasks.send_to", cluster_id=assignment.cluster_id)
    return assignment


def cut_planned(*, cluster: Cluster, at: datetime) -> list[Submission]:
    """Cut arrays that wait to be sent and are larger than their request's limit: the first part keeps the limit.

    The rest is cut in its turn. Where a part is waiting already, nothing more is cut. Return the first parts.
    """
    planned = Submission.objects.filter(cluster=cluster, state=SubmissionState.PLANNED, request__state__in=SENDABLE)
    limit = F("request__assignment__most_in_flight")
    parts = planned.filter(request=OuterRef("request"), tasks__lte=limit)
    larger = planned.filter(~Exists(parts), tasks__gt=limit).order_by("request", "number").distinct("request")
    return [cut for pk in larger.values_list("pk", flat=True) if (cut := _cut(pk, at)) is not None]


@transaction.atomic
def _cut(pk: int, at: datetime) -> Submission | None:
    """Cut one array in two; None where it was sent or its limit was raised meanwhile, or it cannot be written anew."""
    request = locked(Submission.objects.select_related("request").get(pk=pk).request)
    rows = Submission.objects.select_for_update(of=("self",)).select_related("cluster", "retry_of")
    submission = rows.filter(pk=pk, state=SubmissionState.PLANNED).first()
    limit = Assignment.objects.filter(request=request).values_list("most_in_flight", flat=True).first()
    if submission is None or not limit or submission.tasks <= limit:
        return None
    submission.request = request
    numbers = indices_of(submission)
    try:
        plan = plans_of(request)[submission.position]
    except InvalidFields as error:
        log.warning("%s cannot be cut: %s", submission, error)
        return None
    alike: dict[str, Any] = {"request": request, "cluster": submission.cluster, "plan": plan, "at": at}
    alike |= {"retry_of": submission.retry_of, "by": submission.created_by}
    first = new_submission(**alike, number=submission.number, **_jobs(submission, numbers[:limit]))
    changed = ("token", "script", "script_sha256", "tasks", "indices")
    for name in changed:
        setattr(submission, name, getattr(first, name))
    submission.save(update_fields=changed)
    publish_event("submission.cut", submission, at, reason=f"No more than {limit:,} jobs at once.")
    plan_jobs(**alike, reason=f"The rest of array {submission.number}.", **_jobs(submission, numbers[limit:]))
    return submission


def _jobs(submission: Submission, part: list[int]) -> dict[str, Any]:
    return {"indices": part} if submission.indices else {"first": part[0], "tasks": len(part)}


def _checked(request: Request, most_in_flight: int | None, reason: str) -> str:
    text = reason.strip()
    problems = reason_problems(text)
    if most_in_flight is None and takes_files(request):
        problems["most_in_flight"] = ["Jobs made of files as they come need a limit: it protects storage."]
    if most_in_flight is not None and not 1 <= most_in_flight <= MAX_LIMIT:
        problems["most_in_flight"] = [f"From 1 to {MAX_LIMIT:,}; to send nothing for a while, hold the request."]
    if problems:
        raise InvalidFields(problems)
    return text


def _words(limit: int | None) -> str:
    return "no limit" if limit is None else f"{limit:,}"
