"""Unfinished arrays, a row each, as of the last reading of each cluster."""

from collections.abc import Mapping
from datetime import datetime

from django.db.models import QuerySet

from apps.accounts.models import User
from apps.clusters.models import Cluster
from apps.clusters.schedulers.base import CurrentState
from apps.jobs.domain.live.reasons import reason_of
from apps.jobs.models import LiveArray

#: Spool ID, submission time, state, reason and account: unique within a cluster.
ArrayKey = tuple[str, datetime, str, str, str]
#: What can change while the key stays the same.
_CHANGING = ("jobs", "experiment_id", "request_id", "stage")


def array_key(array: LiveArray) -> ArrayKey:
    return array.spool_id, array.submitted_at, array.state, array.reason, array.account


def store_arrays(*, cluster: Cluster, arrays: Mapping[ArrayKey, LiveArray]) -> int:
    """Replace the arrays of a cluster in the caller's transaction.

    Only rows that differ are written; return their number.
    """
    known = {array_key(row): row for row in LiveArray.objects.filter(cluster=cluster)}
    new = [array for key, array in arrays.items() if key not in known]
    gone = [row.pk for key, row in known.items() if key not in arrays]
    changed = []
    for key, row in known.items():
        array = arrays.get(key)
        if array is None:
            continue
        if any(getattr(row, name) != getattr(array, name) for name in _CHANGING):
            array.pk = row.pk
            changed.append(array)

    LiveArray.objects.filter(pk__in=gone).delete()
    LiveArray.objects.bulk_create(new, batch_size=2000)
    LiveArray.objects.bulk_update(
        changed, ["jobs", "experiment", "request", "stage"], batch_size=500
    )
    return len(gone) + len(new) + len(changed)


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
