"""Asking a catalogue which datasets there are. A catalogue is a plugin; the first one is a JSON file."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from apps.core.plugins import Registry, UnknownPlugin


class CatalogueError(Exception):
    """The catalogue cannot be asked; the message says why."""


@dataclass(frozen=True)
class Dataset:
    """A dataset as a catalogue knows it; None is what it does not know."""

    name: str
    files: int | None = None
    events: int | None = None
    size_bytes: int | None = None


@dataclass(frozen=True)
class DataFile:
    """A file of a dataset; `run` is the number of the run that it is of, None where it is of none."""

    name: str
    run: int | None = None


@runtime_checkable
class ListsFiles(Protocol):
    """A catalogue that can list the files of a dataset, as keep-up needs it."""

    def files_of(self, name: str) -> list[DataFile]:
        """Return the files that a dataset has now, none for one that is not known. Raises `CatalogueError`."""
        ...


class DatasetCatalogue(Protocol):
    """Where datasets are looked up. It is made with the part of the setting after its name and the colon."""

    def __init__(self, address: str) -> None: ...

    def find(self, names: Collection[str]) -> Mapping[str, Dataset]:
        """Return those of these names that the catalogue has. Raises `CatalogueError`."""


CATALOGUES: Registry[type[DatasetCatalogue]] = Registry(
    group="opsportal.dataset_catalogues",
    builtins={"file": "apps.production.datasets:FileCatalogue"},
)


def catalogue_of(setting: str) -> DatasetCatalogue | None:
    """Return the catalogue of `name:address`; None for an empty setting. Raises `CatalogueError`."""
    if not setting:
        return None
    name, _, address = setting.partition(":")
    try:
        return CATALOGUES.get(name)(address)
    except UnknownPlugin as error:
        raise CatalogueError(str(error)) from None


class FileCatalogue:
    """A JSON file of `{"datasets": [{"name": …, "files": …, "events": …, "size_bytes": …}]}`, read when it changes.

    A dataset may have a `file_list` of `{"name": …, "run": …}` too.
    """

    def __init__(self, address: str) -> None:
        self.path = Path(address)

    def find(self, names: Collection[str]) -> Mapping[str, Dataset]:
        known = self._known()
        return {name: known[name][0] for name in names if name in known}

    def files_of(self, name: str) -> list[DataFile]:
        known = self._known()
        return list(known[name][1]) if name in known else []

    def _known(self) -> dict[str, tuple[Dataset, tuple[DataFile, ...]]]:
        try:
            found = self.path.stat()
            return _read(self.path, found.st_mtime_ns, found.st_size)
        except OSError as error:
            raise CatalogueError(f"{self.path} cannot be read: {error.strerror}") from None


@lru_cache(maxsize=2)
def _read(path: Path, changed: int, size: int) -> dict[str, tuple[Dataset, tuple[DataFile, ...]]]:
    try:
        rows = json.loads(path.read_bytes())["datasets"]
        return {row["name"]: (_dataset(row), tuple(map(_file, row.get("file_list", ())))) for row in rows}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CatalogueError(f"{path} is no catalogue: {type(error).__name__}: {error}") from None


def _dataset(row: Mapping[str, Any]) -> Dataset:
    numbers = {name: row.get(name) for name in ("files", "events", "size_bytes")}
    wrong = [name for name, value in numbers.items() if value is not None and (type(value) is not int or value < 0)]
    if wrong or not isinstance(row["name"], str):
        raise ValueError(f"{row['name']!r}: {', '.join(wrong) or 'name'} is not as it should be")
    return Dataset(row["name"], **numbers)


def _file(row: Mapping[str, Any]) -> DataFile:
    name, run = row["name"], row.get("run")
    if not isinstance(name, str) or (run is not None and type(run) is not int):
        raise ValueError(f"{row!r} is no file with a run")
    return DataFile(name, run)
