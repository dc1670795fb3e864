"""Datasets that the portal defined of some files of another one: for recoveries, and for splits."""

from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import QuerySet

from apps.accounts.models import Principal
from apps.accounts.permissions import scope_of
from apps.datasets.domain.steps import Step
from apps.production.enums import LinkKind
from apps.production.models import DatasetPart, RequestLink

#: Parts of a dataset that are shown, the newest.
MOST_PARTS = 50


@dataclass(frozen=True)
class Parts:
    """What a dataset is a part of, and what is a part of it, newest first."""

    part_of: list[DatasetPart]
    parts: list[DatasetPart]


def parts_of(name: str, user: Principal) -> Parts:
    """Return the parts that this dataset is, and has, of requests that the user may see.

    Each is that of a request, made from a split or recovered one; both are read with it. The files
    are not.
    """
    rows = _visible_parts(user)
    part_of = rows.filter(name=name)[:MOST_PARTS]
    parts = rows.filter(whole=name)[:MOST_PARTS]
    return Parts(list(part_of), list(parts))


def recoveries_among(makers: Sequence[Step]) -> list[RequestLink]:
    """Return the links of the recoveries among these makers to the requests that they recover."""
    requests = {step.stage.request_id for step in makers}
    links = RequestLink.objects.filter(
        kind=LinkKind.RECOVERED, earlier__in=requests, later__in=requests
    )
    return list(links.select_related("earlier", "later"))


def _visible_parts(user: Principal) -> QuerySet[DatasetPart]:
    parts = DatasetPart.objects.select_related("request", "split_from").defer("files")
    scope = scope_of(user)
    if not scope.sees_all:
        parts = parts.filter(
            request__experiment__in=scope.experiments,
            split_from__experiment__in=scope.experiments,
        )
    return parts.order_by("-pk")
