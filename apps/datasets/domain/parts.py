"""Datasets that the portal defined of some files of another one: for recoveries, and for splits."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from apps.datasets.domain.steps import PartStep, Step
from apps.production.enums import LinkKind
from apps.production.models import DatasetPart, RequestLink

#: Parts of a dataset that are shown, the newest.
MOST_PARTS = 50


@dataclass(frozen=True)
class Parts:
    """The datasets that contain a dataset, and its own parts, newest first."""

    part_of: list[DatasetPart]
    parts: list[DatasetPart]


def steps_of_parts(parts: Iterable[DatasetPart]) -> list[PartStep]:
    """Return a step for each pair of a part and its whole dataset, made from their first row.

    Several requests may have the same part.
    """
    by_names: dict[tuple[str, str], PartStep] = {}
    for part in parts:
        by_names.setdefault((part.whole, part.name), PartStep(part))
    return list(by_names.values())


def recoveries_among(makers: Sequence[Step]) -> list[RequestLink]:
    """Return the links of the recoveries among these makers to the requests that they recover."""
    request_pks = {step.stage.request_id for step in makers}
    links = RequestLink.objects.filter(
        kind=LinkKind.RECOVERED, earlier__in=request_pks, later__in=request_pks
    )
    return list(links.select_related("earlier", "later"))
