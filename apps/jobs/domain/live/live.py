"""Unfinished jobs by state and reason, as of the last reading of each cluster."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from django.db.models import Sum

from apps.accounts.models import User
from apps.clusters.models import Cluster
from apps.clusters.schedulers.base import CurrentJobs, CurrentState
from apps.jobs.domain.collection.proof import ProvenMembership
from apps.jobs.domain.live.arrays import ArrayKey, array_key, store_arrays
from apps.jobs.domain.live.reasons import QueueReason, reason_of
from apps.jobs.domain.live.stored import replace_rows
from apps.jobs.domain.records.conversion import clean_text
from apps.jobs.models import LiveArray, LiveJobs
from apps.production.models import Request


class ProvenStage(NamedTuple):
    """The stage that a submission is proven to belong to."""

    request_pk: int
    stage: str


#: By spool ID and time of submission, which identify a submission within its cluster.
ProvenStages = Mapping[tuple[str, datetime], ProvenStage]


class _GroupKey(NamedTuple):
    """What the jobs of a row of `LiveJobs` have in common."""

    state: str
    reason: str
    experiment_id: int | None
    request_id: int | None
    stage: str
    account: str


def store_live(*, cluster: Cluster, jobs: Iterable[CurrentJobs], stages: ProvenStages) -> int:
    """Store the groups and the arrays of unfinished jobs of a reading.

    `stages` lacks the submissions that are not proven to belong to a request. Runs in the caller's
    transaction. Only rows that differ are written; return their number.
    """
    membership = ProvenMembership(cluster)
    request_pks = {proven.request_pk for proven in stages.values()}
    requests = Request.objects.filter(pk__in=request_pks)
    experiment_of_request = dict(requests.values_list("pk", "experiment"))
    groups: dict[_GroupKey, LiveJobs] = {}
    arrays: dict[ArrayKey, LiveArray] = {}
    for current in jobs:
        proven = stages.get((current.spool_id, current.submitted_at))
        experiment_pk: int | None
        if proven:
            experiment_pk = experiment_of_request[proven.request_pk]
        else:
            experiment_pk = membership.find_experiment_pk(current.account, "")
        key = _GroupKey(
            state=str(current.state),
            reason=clean_text(current.reason, 100),
            experiment_id=experiment_pk,
            request_id=proven.request_pk if proven else None,
            stage=proven.stage if proven else "",
            account=clean_text(current.account, 255),
        )
        if key not in groups:
            groups[key] = LiveJobs(
                cluster=cluster,
                **key._asdict(),
                jobs=0,
                oldest_submitted_at=current.submitted_at,
            )
        group = groups[key]
        group.jobs += current.jobs
        group.oldest_submitted_at = min(group.oldest_submitted_at, current.submitted_at)

        array = LiveArray(
            cluster=cluster,
            spool_id=clean_text(current.spool_id, 64),
            submitted_at=current.submitted_at,
            jobs=0,
            **key._asdict(),
        )
        array = arrays.setdefault(array_key(array), array)
        array.jobs += current.jobs
    written = replace_rows(
        LiveJobs.objects.filter(cluster=cluster),
        groups,
        key_of=_group_key,
        changing=("jobs", "oldest_submitted_at"),
    )
    return written + store_arrays(cluster=cluster, arrays=arrays)


def _group_key(live_jobs: LiveJobs) -> _GroupKey:
    return _GroupKey(
        state=live_jobs.state,
        reason=live_jobs.reason,
        experiment_id=live_jobs.experiment_id,
        request_id=live_jobs.request_id,
        stage=live_jobs.stage,
        account=live_jobs.account,
    )


def live_counts(user: User) -> dict[str, int]:
    """Return the number of jobs in each state that a user can see."""
    rows = (
        LiveJobs.objects.visible_to(user)
        .order_by()
        .values_list("state")
        .annotate(all_jobs=Sum("jobs"))
    )
    return {str(state): 0 for state in CurrentState} | dict(rows)


@dataclass
class LiveReason:
    """Unfinished jobs of one state and reason.

    `codes` are the scheduler's reasons. `requests` counts jobs by request; `others` counts jobs
    without a request by account.
    """

    reason: QueueReason
    jobs: int
    oldest_submitted_at: datetime
    codes: set[str] = field(default_factory=set)
    requests: dict[Request, int] = field(default_factory=dict)
    others: dict[str, int] = field(default_factory=dict)


def live_reasons(user: User, state: CurrentState) -> list[LiveReason]:
    """Return the reasons of unfinished jobs of a state that a user can see, most jobs first."""
    reasons: dict[QueueReason, LiveReason] = {}
    rows = (
        LiveJobs.objects.visible_to(user).filter(state=state).select_related("request", "cluster")
    )
    for live_jobs in rows:
        if state == CurrentState.RUNNING:
            reason = QueueReason("Running")
        else:
            reason = reason_of(live_jobs.reason)
        live = reasons.setdefault(reason, LiveReason(reason, 0, live_jobs.oldest_submitted_at))
        live.jobs += live_jobs.jobs
        live.oldest_submitted_at = min(live.oldest_submitted_at, live_jobs.oldest_submitted_at)
        if live_jobs.reason:
            live.codes.add(live_jobs.reason)
        if live_jobs.request:
            live.requests[live_jobs.request] = (
                live.requests.get(live_jobs.request, 0) + live_jobs.jobs
            )
        else:
            name = live_jobs.account or live_jobs.cluster.name
            live.others[name] = live.others.get(name, 0) + live_jobs.jobs
    return sorted(reasons.values(), key=lambda live: (-live.jobs, live.reason.text))
