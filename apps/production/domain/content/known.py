"""Values of earlier requests, suggested while the user types."""

from collections.abc import Mapping
from typing import Any

from django.db.models import Max, QuerySet

from apps.production.models import Request, Stage

#: The columns with the values of each kind. Campaigns are columns of requests, all others of their
#: stages.
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "campaign": ("campaign",),
    "release": ("release",),
    "configuration": ("configuration",),
    "dataset": ("output_dataset", "input_dataset"),
}
MOST = 20


def known_values(
    requests: QuerySet[Request], *, kind: str, text: str = "", most: int = MOST
) -> list[str]:
    """Return values of a kind in these requests and their stages that contain a text.

    The last used values come first. Raises `KeyError` for a kind that is not in `COLUMNS`.
    """
    last: dict[str, int] = {}
    for column in COLUMNS[kind]:
        rows: QuerySet[Any] = requests
        if kind != "campaign":
            rows = Stage.objects.filter(request__in=requests.order_by())
        matching = rows.filter(**{f"{column}__icontains": text}).exclude(**{column: ""}).order_by()
        for value, place in (
            matching.values_list(column).annotate(last=Max("pk")).order_by("-last")[:most]
        ):
            last[value] = max(place, last.get(value, 0))
    return sorted(last, key=lambda value: -last[value])[:most]
