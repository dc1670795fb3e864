"""Unfinished arrays, a row each, as of the last reading of each cluster."""

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from django.db.models import QuerySet

from apps.accounts.models import User
from apps.clusters.models import Cluster
from apps.clusters.schedulers.base import CurrentState
from apps.jobs.domain.live.reasons import reason_of
from apps.jobs.domain.live.stored import replace_rows
from apps.jobs.models import LiveArray


class ArrayKey(NamedTuple):
    """Identifies a row of `LiveArray` within its cluster."""

    spool_id: str
    submitted_at: datetime
    state: str
    reason: str
    account: str


def array_key(array: LiveArray) -> ArrayKey:
    return ArrayKey(array.spool_id, array.submitted_at, array.state, array.reason, array.account)


def store_arrays(*, cluster: Cluster, arrays: Mapping[ArrayKey, LiveArray]) -> int:
    """Replace the arrays of a cluster; return the number of rows written."""
    return replace_rows(
        LiveArray.objects.filter(cluster=cluster),
        arrays,
        key_of=array_key,
        changing=("jobs", "experiment_id", "request_id", "stage"),
    )


def live_arrays(user: User, *, state: CurrentState, reason: str = "") -> QuerySet[LiveArray]:
    """Return the unfinished arrays of a state that a user can see.

    `reason` is the text of a `QueueReason`, which may stand for several reasons of schedulers.
    """
    arrays = LiveArray.objects.visible_to(user).filter(state=state)
    if reason:
        codes = arrays.order_by().values_list("reason", flat=True).distinct()
        matching = [code for code in codes if reason_of(code).text == reason]
        arrays = arrays.filter(reason__in=matching)
    return arrays.select_related("cluster", "experiment", "request")
