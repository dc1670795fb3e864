"""Asking a catalogue which datasets there are. A catalogue is a plugin; the first one is a JSON file."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

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
    """A JSON file of `{"datasets": [{"name": …, "files": …, "events": …, "size_bytes": …}]}`, read when it changes."""

    def __init__(self, address: str) -> None:
        self.path = Path(address)

    def find(self, names: Collection[str]) -> Mapping[str, Dataset]:
        try:
            found = self.path.stat()
            known = _read(self.path, found.st_mtime_ns, found.st_size)
        except OSError as error:
            raise CatalogueError(f"{self.path} cannot be read: {error.strerror}") from None
        return {name: known[name] for name in names if name in known}


@lru_cache(maxsize=2)
def _read(path: Path, changed: int, size: int) -> dict[str, Dataset]:
    try:
        rows = json.loads(path.read_bytes())["datasets"]
        return {row["name"]: _dataset(row) for row in rows}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CatalogueError(f"{path} is no catalogue: {type(error).__name__}: {error}") from None


def _dataset(row: Mapping[str, Any]) -> Dataset:
    numbers = {name: row.get(name) for name in ("files", "events", "size_bytes")}
    wrong = [name for name, value in numbers.items() if value is not None and (type(value) is not int or value < 0)]
    if wrong or not isinstance(row["name"], str):
        raise ValueError(f"{row['name']!r}: {', '.join(wrong) or 'name'} is not as it should be")
    return Dataset(row["name"], **numbers)
