"""Whether any jobs were made for a request, if only as a test: from then on it is neither split nor combined."""

from collections.abc import Iterable
from datetime import datetime

from apps.production.models import Request


def record_work_start(*, requests: Iterable[int], at: datetime) -> None:
    """Note on requests, by primary key, that jobs of them were sent, seen or reported; the first moment stays.

    For the transaction that stores what tells so. Rows are held in the order in which others hold several.
    """
    new = Request.objects.select_for_update().filter(pk__in=requests, work_began_at=None).order_by("pk")
    Request.objects.filter(pk__in=list(new.values_list("pk", flat=True))).update(work_began_at=at)
