"""The input datasets of a request, as catalogues knew them when they were last asked."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from django.conf import settings

from apps.datasets.domain.staging_options import can_stage
from apps.datasets.models import Catalogue, KnownDataset, StagingRequest
from apps.production.domain.checks.facts import datasets_of_others
from apps.production.domain.content.model import RequestContent
from apps.production.domain.content.scan import at_point, scan_of
from apps.production.domain.content.stages import content_of
from apps.production.models import Request

#: The page of a request shows no more datasets.
MOST_SHOWN = 20
#: The setting `DATASET_CATALOGUE` for the catalogues of the back office.
_BACK_OFFICE = "portal"


@dataclass(frozen=True)
class InputDataset:
    """An input dataset, its newest answer, and the newest request to bring it to disk.

    `stages_in` is the catalogue that can bring it to disk.
    """

    known: KnownDataset
    staging: StagingRequest | None
    stages_in: Catalogue | None

    @property
    def is_offered(self) -> bool:
        """Whether the page offers to bring it to disk."""
        is_followed = self.staging is not None and self.staging.is_followed
        return self.stages_in is not None and not is_followed


def input_names(content: RequestContent) -> list[str]:
    """Return the datasets that stages read and none writes, at each point of a scan, in order."""
    contents = [content]
    points = scan_of(content).points
    if points:
        contents = [at_point(content, point) for point in points]
    read: dict[str, None] = {}
    written = set()
    for at_one_point in contents:
        for stage in at_one_point.stages:
            read[stage.input_dataset] = None
            written.add(stage.output_dataset)
    return [name for name in read if name and name not in written and "\0" not in name]


def input_datasets(request: Request, content: RequestContent) -> list[InputDataset]:
    """Return the input datasets that a catalogue has, in at most four queries.

    Asks no catalogue.
    """
    names = input_names(content)[:MOST_SHOWN]
    rows = _known(request, names)
    if not rows:
        return []
    stagings: dict[str, StagingRequest] = {}
    staged = StagingRequest.objects.filter(request=request, dataset__in=list(rows))
    for staging in staged.select_related("catalogue").order_by("requested_at", "pk"):
        stagings[staging.dataset] = staging

    datasets = []
    for name, known in rows.items():
        datasets.append(InputDataset(known[0], stagings.get(name), _first_to_stage(known)))
    return datasets


def stageable_in(request: Request, names: Sequence[str]) -> Mapping[str, Catalogue]:
    """Return the catalogue that can bring each of these input datasets to disk.

    A dataset that is no input of the request, or that none can bring to disk, is left out.
    """
    inputs = set(input_names(content_of(request)))
    catalogues = {}
    for name, known in _known(request, [name for name in names if name in inputs]).items():
        catalogue = _first_to_stage(known)
        if catalogue is not None:
            catalogues[name] = catalogue
    return catalogues


def _known(request: Request, names: Sequence[str]) -> Mapping[str, list[KnownDataset]]:
    """Return what active catalogues know of the datasets that exist and are not others'."""
    if not names or settings.DATASET_CATALOGUE.partition(":")[0] != _BACK_OFFICE:
        return {}
    known = KnownDataset.objects.filter(name__in=names, exists=True, catalogue__active=True)
    rows: dict[str, list[KnownDataset]] = defaultdict(list)
    for dataset in known.select_related("catalogue").order_by("catalogue__name"):
        rows[dataset.name].append(dataset)
    if not rows:
        return {}
    hidden = datasets_of_others(list(rows), request.experiment, request)
    visible = {}
    for name in names:
        if name in rows and name not in hidden:
            visible[name] = rows[name]
    return visible


def _first_to_stage(known: Sequence[KnownDataset]) -> Catalogue | None:
    for dataset in known:
        if can_stage(dataset.catalogue):
            return dataset.catalogue
    return None
