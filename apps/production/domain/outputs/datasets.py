"""Dataset catalogues: a plugin interface, and the built-in catalogue in a JSON file."""

import fcntl
import json
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from django.conf import settings
from pydantic import BaseModel, ConfigDict, NonNegativeInt, ValidationError

from apps.core.domain.plugins import Registry, UnknownPlugin


class CatalogueError(Exception):
    """The catalogue is unavailable. The message gives the reason."""


@dataclass(frozen=True)
class DataFile:
    """A file of a dataset. Values that the catalogue does not know are None."""

    name: str
    run: int | None = None
    events: NonNegativeInt | None = None
    size_bytes: NonNegativeInt | None = None


@dataclass(frozen=True)
class Dataset:
    """A dataset in a catalogue. Values that the catalogue does not know are None.

    `file_list` is for internal use by catalogues.
    """

    __pydantic_config__ = ConfigDict(strict=True)

    name: str
    files: NonNegativeInt | None = None
    events: NonNegativeInt | None = None
    size_bytes: NonNegativeInt | None = None
    file_list: tuple[DataFile, ...] = field(default=(), repr=False, compare=False)
    #: Whether its list of files can no longer change.
    frozen: bool | None = None
    #: How many files the catalogue was asked where they are. The others are parts of it.
    files_located: NonNegativeInt | None = None
    files_on_disk: NonNegativeInt | None = None
    files_on_tape_only: NonNegativeInt | None = None
    files_without_location: NonNegativeInt | None = None
    #: Whether the portal can request it on disk.
    can_stage: bool = False

    @property
    def is_complete(self) -> bool | None:
        """Whether its list is final and each file has a location; None if that is unknown."""
        if self.frozen is None or self.files is None or self.files_without_location is None:
            return None
        return self.frozen and self.files == self.files_located and not self.files_without_location


NO_LIST = "No catalogue that lists files is configured."
_Known = dict[str, Dataset]


@runtime_checkable
class ListsFiles(Protocol):
    """A catalogue that can list the files of a dataset, as keep-up processing requires."""

    def files_of(self, name: str) -> list[DataFile]:
        """Return the current files of a dataset, none if it is unknown. Raises `CatalogueError`."""
        ...


@runtime_checkable
class DefinesDatasets(ListsFiles, Protocol):
    """A catalogue in which the portal can define datasets from lists of files.

    The parts of split requests need it.
    """

    def can_define(self) -> bool:
        """Whether the portal may define datasets. Raises `CatalogueError`."""
        ...

    def define(self, name: str, whole: str, files: Sequence[str]) -> None:
        """Define a dataset of these files of another one. Repeating it changes nothing.

        Raises `CatalogueError`, also if a different dataset has this name.
        """
        ...


class DatasetCatalogue(Protocol):
    """A catalogue of datasets.

    It is created with the part of the setting after the name and the colon.
    """

    def __init__(self, address: str) -> None: ...

    def find(self, names: Collection[str]) -> Mapping[str, Dataset]:
        """Return the known datasets among these names. Raises `CatalogueError`."""


CATALOGUES: Registry[type[DatasetCatalogue]] = Registry(
    group="opsportal.dataset_catalogues",
    builtins={
        "file": "apps.production.domain.outputs.datasets:FileCatalogue",
        "portal": "apps.datasets.domain.look_ups:BackOfficeCatalogues",
    },
)


def catalogue_of(setting: str) -> DatasetCatalogue | None:
    """Return the catalogue for a setting `name:address`; None for an empty setting.

    Raises `CatalogueError`.
    """
    if not setting:
        return None
    name, _, address = setting.partition(":")
    try:
        return CATALOGUES.get(name)(address)
    except UnknownPlugin as error:
        raise CatalogueError(str(error)) from None


def listing_fault(setting: str) -> str:
    """Return why the catalogue cannot list files, or an empty text."""
    try:
        return "" if isinstance(catalogue_of(setting), ListsFiles) else NO_LIST
    except CatalogueError as error:
        return str(error)


def defining_catalogue(setting: str) -> DefinesDatasets | None:
    """Return the catalogue if the portal may define datasets in it, else None.

    Raises `CatalogueError`.
    """
    catalogue: object = catalogue_of(setting)
    if isinstance(catalogue, DefinesDatasets) and catalogue.can_define():
        return catalogue
    return None


def may_define(setting: str) -> bool:
    """Whether a catalogue is available and lets the portal define datasets."""
    try:
        return defining_catalogue(setting) is not None
    except CatalogueError:
        return False


class FileCatalogue:
    """A catalogue in a JSON file of `{"datasets": [{"name": …, "files": …, "events": …, …}]}`.

    It is read again when it changes. A dataset may also have `size_bytes`, and a `file_list` of
    `{"name": …, "run": …}`. `"definitions": "parts.json"` next to `datasets` names a file in the
    same directory, to which the portal writes the datasets that it defines.
    """

    def __init__(self, address: str) -> None:
        self.path = Path(address)

    def find(self, names: Collection[str]) -> Mapping[str, Dataset]:
        known = self.all_datasets()
        return {name: known[name] for name in names if name in known}

    def files_of(self, name: str) -> list[DataFile]:
        known = self.all_datasets()
        return list(known[name].file_list) if name in known else []

    def can_define(self) -> bool:
        return self._definitions() is not None

    def define(self, name: str, whole: str, files: Sequence[str]) -> None:
        path = self._definitions()
        if path is None:
            raise CatalogueError(f"{self.path} does not name a file for definitions")
        runs = {file.name: file.run for file in self.files_of(whole)}
        if missing := [file for file in files if file not in runs]:
            raise CatalogueError(f"{whole} has no file {missing[0]}")
        listed = []
        for file in files:
            entry: dict[str, Any] = {"name": file}
            if runs[file] is not None:
                entry["run"] = runs[file]
            listed.append(entry)
        definition = {"name": name, "files": len(files), "part_of": whole, "file_list": listed}
        if name in self.all_datasets() and [file.name for file in self.files_of(name)] != list(
            files
        ):
            raise CatalogueError(f"another dataset is named {name}")
        try:
            with path.with_name(f"{path.name}.lock").open("a") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if path.exists():
                    rows = json.loads(path.read_bytes())["datasets"]
                else:
                    rows = []
                if (
                    all(defined["name"] != name for defined in rows)
                    and name not in self.all_datasets()
                ):
                    _write(path, {"datasets": [*rows, definition]})
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CatalogueError(f"{path} cannot be written: {error}") from None

    def _definitions(self) -> Path | None:
        """Return the path of the file for definitions by the portal, or None."""
        beside = _read_current(self.path)[1]
        return self.path.with_name(beside) if beside else None

    def all_datasets(self) -> Mapping[str, Dataset]:
        """Return all datasets by name. Raises `CatalogueError`."""
        known = _read_current(self.path)[0]
        path = self._definitions()
        if path is None or not path.exists():
            return known
        return _read_current(path)[0] | known


class _Content(BaseModel):
    datasets: list[Dataset]
    definitions: Any = ""


def _read_current(path: Path) -> tuple[_Known, str]:
    """Return `_read` of the current file. Raises `CatalogueError`."""
    try:
        file_status = path.stat()
        return _read(path, file_status.st_mtime_ns, file_status.st_size)
    except OSError as error:
        raise CatalogueError(f"{path} cannot be read: {error.strerror}") from None


@lru_cache(maxsize=4)
def _read(path: Path, changed: int, size: int) -> tuple[_Known, str]:
    """Return the datasets of a file, and the name of its file of definitions or an empty text.

    `changed` and `size` are part of the cache key.
    """
    try:
        content = _Content.model_validate_json(path.read_bytes())
    except ValidationError as error:
        fault = error.errors()[0]
        place = ".".join(str(part) for part in fault["loc"])
        raise CatalogueError(f"{path} is not a catalogue: {place}: {fault['msg']}") from None
    beside = content.definitions
    return {dataset.name: dataset for dataset in content.datasets}, beside if isinstance(
        beside, str
    ) and Path(beside).name == beside else ""


def _write(path: Path, content: object) -> None:
    """Replace a file atomically, so that no reader sees a partial one."""
    fresh = path.with_name(f"{path.name}.new")
    with fresh.open("w") as output:
        json.dump(content, output)
        output.flush()
        os.fsync(output.fileno())
    fresh.replace(path)


def find_datasets(names: Iterable[str]) -> tuple[Mapping[str, Dataset] | None, str]:
    """Return the datasets in the catalogue with these names, and any catalogue error.

    The datasets are None without a catalogue.
    """
    try:
        catalogue = catalogue_of(settings.DATASET_CATALOGUE)
        return (None if catalogue is None else catalogue.find(list(names))), ""
    except CatalogueError as error:
        return None, str(error)
