"""The time of the first job of a request, including tests.

From then on, the request cannot be split or combined.
"""

from collections.abc import Iterable
from datetime import datetime

from apps.production.models import Request


def record_work_start(*, request_pks: Iterable[int], at: datetime) -> None:
    """Set the time of the first job on requests, if it is not set.

    Call it in the transaction that stores the jobs. Rows are locked by primary key, as everywhere,
    to avoid deadlocks.
    """
    new = (
        Request.objects.select_for_update()
        .filter(pk__in=request_pks, work_began_at=None)
        .order_by("pk")
    )
    Request.objects.filter(pk__in=list(new.values_list("pk", flat=True))).update(work_began_at=at)
