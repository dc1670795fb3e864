"""List and accept jobs that claim to belong to a request without proof."""

from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Count, Max, Q, QuerySet

from apps.accounts.models import User
from apps.clusters.models import Cluster
from apps.clusters.schedulers.base import JobState
from apps.core.domain.events import publish
from apps.core.errors import InvalidFields, InvalidTransition, NotAllowed
from apps.jobs.domain.collection.proof import lock_proofs, prove_jobs
from apps.jobs.enums import FAILED_STATES, ClaimScope, Proof
from apps.jobs.models import ClaimAcceptance, Job
from apps.production.domain.actors import may
from apps.production.domain.reasons import checked_reason
from apps.production.enums import Actor
from apps.production.models import Request

#: Maximum arrays in a list.
MOST_CLAIMS = 100
_COLUMNS = {ClaimScope.JOB: "job_id", ClaimScope.ARRAY: "spool_id", ClaimScope.USER: "user"}


def has_claims(request: Request) -> bool:
    """Return whether jobs claim to belong to a request without proof."""
    return _claims(request).exists()


def claims_of(request: Request) -> list[dict[str, Any]]:
    """Return the unproven claims of jobs by array, newest first, with numbers of attempts."""
    groups = _claims(request).values("cluster__name", "user", "account", "spool_id", "submitted_at")
    counted = groups.annotate(
        jobs=Count("pk"),
        completed=Count("pk", filter=Q(state=JobState.COMPLETED)),
        failed=Count("pk", filter=Q(state__in=FAILED_STATES)),
        last_ended_at=Max("ended_at"),
    )
    return [
        dict(counts)
        for counts in counted.order_by("-submitted_at", "cluster__name", "spool_id")[:MOST_CLAIMS]
    ]


def acceptances_of_claims(request: Request) -> list[ClaimAcceptance]:
    """Return the accepted claims of a request, withdrawn ones included, newest first."""
    return list(ClaimAcceptance.objects.filter(request=request).select_related("cluster"))


@transaction.atomic
def accept_claims(
    *,
    request: Request,
    cluster: Cluster,
    scope: str,
    name: str,
    by: User,
    at: datetime,
    reason: str,
) -> ClaimAcceptance:
    """Accept claims of one job, of an array or of a user for a request.

    Future jobs of the array or user are covered too. Raises `NotAllowed`, `InvalidFields`, or
    `InvalidTransition` if there is no such claim or it was accepted already.
    """
    check_may_decide(by, request)
    text = checked_reason(reason)
    if scope not in ClaimScope.values:
        raise InvalidFields({"scope": [f"Choose one of: {', '.join(ClaimScope.values)}."]})
    lock_proofs(shared=False)
    claims = _claims(request).filter(cluster=cluster, **{_COLUMNS[ClaimScope(scope)]: name})
    newest = claims.order_by("-submitted_at").values_list("submitted_at", flat=True).first()
    if newest is None or not name:
        raise InvalidTransition(f"{request}: no job with this {scope} claims to belong to it.")
    acceptance = ClaimAcceptance(
        request=request,
        cluster=cluster,
        scope=scope,
        name=name,
        submitted_at=None if scope == ClaimScope.USER else newest,
        reason=text,
        at=at,
        by=by.username,
    )
    try:
        with transaction.atomic():
            acceptance.save()
    except IntegrityError:
        raise InvalidTransition(f"{request}: this claim was already accepted.") from None
    _apply("claims.accepted", acceptance, Proof.CLAIMED, by=by, at=at, reason=text)
    return acceptance


@transaction.atomic
def withdraw_claims(
    *, request: Request, acceptance: int, by: User, at: datetime, reason: str
) -> ClaimAcceptance:
    """Withdraw an acceptance, so that its jobs no longer count for the request.

    Raises `NotAllowed`, `InvalidFields`, `InvalidTransition`.
    """
    check_may_decide(by, request)
    text = checked_reason(reason)
    lock_proofs(shared=False)
    acceptances = ClaimAcceptance.objects.select_related("cluster")
    claim_acceptance = acceptances.filter(request=request, pk=acceptance, withdrawn_at=None).first()
    if claim_acceptance is None:
        raise InvalidTransition(f"{request}: acceptance not found, or already withdrawn.")
    claim_acceptance.withdrawn_at = at
    claim_acceptance.withdrawn_by = by.username
    claim_acceptance.withdrawn_reason = text
    claim_acceptance.save(update_fields=["withdrawn_at", "withdrawn_by", "withdrawn_reason"])
    _apply("claims.withdrawn", claim_acceptance, Proof.ACCEPTED, by=by, at=at, reason=text)
    return claim_acceptance


def _claims(request: Request) -> QuerySet[Job]:
    return Job.objects.filter(claimed_key=request.key, proof=Proof.CLAIMED).order_by()


def check_may_decide(by: User, request: Request) -> None:
    """Raise `NotAllowed` unless the user may accept and withdraw claims."""
    if not may(by, Actor.OPERATOR, request):
        raise NotAllowed("Only approvers and shifters can accept claims.")


def _apply(
    kind: str, acceptance: ClaimAcceptance, proof: Proof, *, by: User, at: datetime, reason: str
) -> None:
    """Prove the affected jobs again and publish the event."""
    affected = Job.objects.filter(
        claimed_key=acceptance.request.key, cluster=acceptance.cluster, proof=proof
    )
    changed = prove_jobs(affected, at=at)
    data = {
        "scope": acceptance.scope,
        "name": acceptance.name,
        "cluster": acceptance.cluster.name,
        "jobs": len(changed),
    }
    publish(kind=kind, target=acceptance.request, by=by, at=at, reason=reason, data=data)
