"""The catalogue in a JSON file on the portal's host."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Self

from apps.datasets.catalogues.base import (
    CatalogueConfiguration,
    CatalogueFile,
    DatasetSummary,
    Location,
    Refused,
    Unclear,
)
from apps.datasets.catalogues.listing import check_count, check_same_files, each_once
from apps.production.domain.outputs.datasets import CatalogueError as UnreadableFile
from apps.production.domain.outputs.datasets import Dataset, FileCatalogue


class JSONFileCatalogue:
    """Reads the file that `FileCatalogue` describes; its path is the base URL."""

    knows_locations = False

    def __init__(self, path: str) -> None:
        self._catalogue = FileCatalogue(path)

    @classmethod
    def from_configuration(cls, configuration: CatalogueConfiguration) -> Self:
        configuration.check_options()
        if configuration.credential_file:
            raise Refused("A JSON file needs no credential.")
        return cls(configuration.base_url)

    def describe(self, name: str) -> DatasetSummary:
        dataset = self._datasets().get(name)
        if dataset is None:
            return DatasetSummary(name, exists=False)

        count = dataset.files
        if count is None and dataset.file_list:
            count = len(dataset.file_list)
        return DatasetSummary(
            name,
            exists=True,
            files=count,
            size_bytes=dataset.size_bytes,
            events=dataset.events,
        )

    def files(self, name: str) -> Iterator[CatalogueFile]:
        dataset = self._datasets().get(name)
        if dataset is None:
            raise Refused(f"The catalogue has no dataset {name}.")
        if not dataset.file_list and dataset.files != 0:
            raise Refused(f"The catalogue does not list the files of {name}.")
        if dataset.files is not None:
            check_count(dataset=name, listed=len(dataset.file_list), expected=dataset.files)
        return each_once(name, _catalogue_files(dataset))

    def locations(self, names: Collection[str]) -> Mapping[str, list[Location]]:
        raise Refused("The catalogue in a JSON file does not know where files are.")

    def existing(self, names: Collection[str]) -> set[str]:
        declared: set[str] = set()
        for dataset in self._datasets().values():
            declared.update(file.name for file in dataset.file_list)
        return declared.intersection(names)

    def make_dataset(
        self, *, name: str, files: Sequence[str], source: str, description: str
    ) -> None:
        existing_dataset = self._datasets().get(name)
        if existing_dataset is not None:
            present = (file.name for file in existing_dataset.file_list)
            check_same_files(dataset=name, present=present, expected=files)
            return
        try:
            self._catalogue.define(name, source, files)
        except UnreadableFile as error:
            raise Refused(str(error)) from None

    def _datasets(self) -> Mapping[str, Dataset]:
        try:
            return self._catalogue.all_datasets()
        except UnreadableFile as error:
            raise Unclear(str(error)) from None


def _catalogue_files(dataset: Dataset) -> Iterator[CatalogueFile]:
    for file in dataset.file_list:
        runs = None if file.run is None else (file.run,)
        yield CatalogueFile(file.name, runs=runs)
