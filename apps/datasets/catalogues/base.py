"""Interface of dataset catalogues: which files a dataset has, and where they are."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Protocol, Self, runtime_checkable


class CatalogueError(Exception):
    """A catalogue did not answer a question.

    The answer is unknown: never treat it as “no files”. The message can be shown to users.
    """


class Refused(CatalogueError):
    """The catalogue refuses the request, or cannot do it. Repeating it does not help."""


class BadName(Refused):
    """No dataset or file of the catalogue can have this name."""


class SignInNeeded(CatalogueError):
    """The portal's credential is missing, expired or not accepted."""


class TryLater(CatalogueError):
    """The catalogue cannot be reached now, is overloaded, or takes too long."""


class Unclear(CatalogueError):
    """The response is not what the catalogue documents, or contradicts another one."""


class Incomplete(Unclear):
    """The response was cut off, or its length differs from the catalogue's own count."""


class Medium(StrEnum):
    """Storage that holds a replica of a file."""

    DISK = "disk"
    TAPE = "tape"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class DatasetSummary:
    """The metadata of a dataset in a catalogue, without its list of files.

    Values that the catalogue does not know are None. `frozen` is whether its list of files can no
    longer change.
    """

    name: str
    exists: bool
    files: int | None = None
    size_bytes: int | None = None
    events: int | None = None
    frozen: bool | None = None


@dataclass(frozen=True, slots=True)
class CatalogueFile:
    """A file of a dataset. Values that the catalogue does not know are None.

    `checksums` are pairs of algorithm and value, both in lower case. `parents` are names of files.
    `catalogue_id` is the file's id in the catalogue, or empty.
    """

    name: str
    size_bytes: int | None = None
    events: int | None = None
    checksums: tuple[tuple[str, str], ...] = ()
    runs: tuple[int, ...] | None = None
    created_at: datetime | None = None
    parents: tuple[str, ...] | None = None
    retired: bool = False
    catalogue_id: str = ""


@dataclass(frozen=True, slots=True)
class Location:
    """A replica of a file.

    `site` is the name of the storage, such as an RSE. `path` is a path or URL, or empty.
    `available` is whether the replica is complete and can be read, None if the catalogue does not
    know. A replica on tape can be available although it is not on disk.
    """

    site: str
    path: str
    medium: Medium
    available: bool | None = None


@dataclass(frozen=True, slots=True)
class StageProgress:
    """How far a dataset that was requested on disk is.

    Judge it by the counts and by a deadline of your own: a catalogue can report the same `state`
    forever. `state` and `error` are the catalogue's words.
    """

    request_id: str
    files_on_disk: int
    files_waiting: int
    files_stuck: int
    state: str
    error: str = ""
    expires_at: datetime | None = None

    @property
    def is_complete(self) -> bool:
        """Whether all files are on disk; False as long as there are none."""
        return self.files_on_disk > 0 and self.files_waiting + self.files_stuck == 0


@dataclass(frozen=True, slots=True)
class CatalogueConfiguration:
    """How to reach a catalogue.

    `base_url` is its URL, or the path of a JSON file. `credential_file` is the path of a file that
    `credentials.read_credentials` reads, or empty.
    """

    base_url: str
    credential_file: str = ""
    options: Mapping[str, str] = field(default_factory=dict)

    def check_options(self, *known: str) -> None:
        """Raise `Refused` if an option is not one of `known`."""
        unknown = sorted(self.options.keys() - set(known))
        if unknown:
            raise Refused(
                f"The catalogue has no option “{unknown[0]}”. Its options are: "
                f"{', '.join(sorted(known)) or 'none'}."
            )


class Catalogue(Protocol):
    """A catalogue of datasets. Every method raises `CatalogueError` if the answer is unknown.

    The methods send requests, which may take minutes: call them in tasks, not in pages.
    """

    #: Whether the catalogue knows where files are. If not, `locations` raises `Refused`.
    knows_locations: bool

    @classmethod
    def from_configuration(cls, configuration: CatalogueConfiguration) -> Self:
        """Create the catalogue without sending a request. Raises `CatalogueError`."""
        ...

    def describe(self, name: str) -> DatasetSummary:
        """Return what is known of a dataset; `exists` is False if the catalogue has none."""
        ...

    def files(self, name: str) -> Iterator[CatalogueFile]:
        """Yield the files of a dataset, each once.

        Raises `Refused` if the dataset does not exist, and `Incomplete` if the list was cut off
        or differs from the catalogue's count. It may raise after the first files: use none of them
        before the iterator has ended.
        """
        ...

    def locations(self, names: Collection[str]) -> Mapping[str, list[Location]]:
        """Return the replicas of files, by name.

        A file without replicas has an empty list. A file that is not declared is left out.
        """
        ...

    def existing(self, names: Collection[str]) -> set[str]:
        """Return which of these files are declared and not retired, as they were named."""
        ...


@runtime_checkable
class Stages(Protocol):
    """A catalogue that brings datasets from tape, or from another site, to a disk."""

    def request_on_disk(
        self, *, dataset: str, storage: str, lifetime_seconds: int, comment: str
    ) -> str:
        """Request a dataset on a storage for some time; return the id of the request.

        Repeating the request returns the id of the existing one.
        """
        ...

    def stage_progress(self, request_id: str) -> StageProgress:
        """Return the progress of a request."""
        ...


@runtime_checkable
class MakesDatasets(Protocol):
    """A catalogue in which the portal can make datasets with a fixed list of files."""

    def make_dataset(
        self, *, name: str, files: Sequence[str], source: str, description: str
    ) -> None:
        """Make a dataset of these declared files and freeze it.

        `source` is the dataset that the files are from. Repeating it changes nothing, and completes
        what an interrupted call began. Nothing is ever deleted: raises `Refused` if a different
        dataset has this name.
        """
        ...
