"""Unfinished jobs by state and reason, as of the last reading of each cluster."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

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

#: Request and stage of a submission, by spool ID and submission time.
Named = Mapping[tuple[str, datetime], tuple[int, str]]
_Key = tuple[str, str, int | None, int | None, str, str]


def store_live(*, cluster: Cluster, jobs: Iterable[CurrentJobs], named: Named) -> int:
    """Store the groups and the arrays of unfinished jobs of a reading.

    Runs in the caller's transaction. Only rows that differ are written; return their number.
    """
    membership = ProvenMembership(cluster)
    requests = dict(
        Request.objects.filter(pk__in={pk for pk, _ in named.values()}).values_list(
            "pk", "experiment"
        )
    )
    groups: dict[_Key, LiveJobs] = {}
    arrays: dict[ArrayKey, LiveArray] = {}
    for current in jobs:
        request, stage = named.get((current.spool_id, current.submitted_at), (None, ""))
        experiment: int | None
        if request:
            experiment = requests[request]
        else:
            experiment = membership.experiment_of(current.account, "")
        reason = clean_text(current.reason, 100)
        account = clean_text(current.account, 255)
        key = (str(current.state), reason, experiment, request, stage, account)
        if (group := groups.get(key)) is None:
            group = groups[key] = _group(cluster, key, current.submitted_at)
        group.jobs += current.jobs
        group.oldest_submitted_at = min(group.oldest_submitted_at, current.submitted_at)

        array = LiveArray(
            cluster=cluster,
            spool_id=clean_text(current.spool_id, 64),
            submitted_at=current.submitted_at,
            state=str(current.state),
            reason=reason,
            jobs=0,
            experiment_id=experiment,
            request_id=request,
            stage=stage,
            account=account,
        )
        array = arrays.setdefault(array_key(array), array)
        array.jobs += current.jobs
    written = replace_rows(
        LiveJobs.objects.filter(cluster=cluster),
        groups,
        key_of=_key,
        changing=("jobs", "oldest_submitted_at"),
    )
    return written + store_arrays(cluster=cluster, arrays=arrays)


def _group(cluster: Cluster, key: _Key, submitted_at: datetime) -> LiveJobs:
    state, reason, experiment, request, stage, account = key
    return LiveJobs(
        cluster=cluster,
        state=state,
        reason=reason,
        experiment_id=experiment,
        request_id=request,
        stage=stage,
        account=account,
        jobs=0,
        oldest_submitted_at=submitted_at,
    )


def _key(live_jobs: LiveJobs) -> _Key:
    return (
        live_jobs.state,
        live_jobs.reason,
        live_jobs.experiment_id,
        live_jobs.request_id,
        live_jobs.stage,
        live_jobs.account,
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
