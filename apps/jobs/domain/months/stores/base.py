"""What a store of archived months does, and the manifest of a month."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Protocol, Self

from apps.core.errors import InvalidTransition

MANIFEST = "month.json"


class BadArchive(InvalidTransition):
    """An archived month is missing or incomplete, or its files have changed."""


class StoreUnavailable(BadArchive):
    """The store does not answer, or rejects the portal."""


@dataclass(frozen=True)
class Content:
    """The content of one file: number of rows, PostgreSQL's checksum, and the file's checksum."""

    rows: int
    digest: str
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """The content of `month.json`: the files by table, and the links to archived rows by column.

    A link is a pair of primary keys: of the row that refers to an archived row, and of the archived
    row.
    """

    month: str
    archived_at: str
    tables: dict[str, Content]
    links: dict[str, list[tuple[int, int]]] = field(default_factory=dict)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the manifest of this text. Raises `ValueError`, `TypeError`, `KeyError`."""
        raw = json.loads(text)
        contents = {name: Content(**content) for name, content in raw.pop("tables").items()}
        links = {}
        for name, pairs in raw.pop("links").items():
            links[name] = [(key, target_key) for key, target_key in pairs]
        return cls(**raw, tables=contents, links=links)

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1)


class MonthStore(Protocol):
    """A store of archived months, which several processes and hosts use at once.

    Each method that reads or writes the store raises `BadArchive`, and `OSError` for what is wrong
    with a local disk.
    """

    #: As messages and documentation name it.
    name: str

    def place(self, month: date) -> str:
        """Return where a month is, as messages name it."""

    def new_directory(self, month: date) -> Path:
        """Return an empty local directory for the files of a month."""

    def put_in_place(self, month: date, new: Path, manifest: Manifest) -> None:
        """Store the month of `new_directory`, in place of a former one.

        A reader, also one after a kill at any moment, gets one of the two as a whole. One process
        at a time may do this with a month.
        """

    def read_manifest(self, month: date) -> Manifest:
        """Return the manifest of a month."""

    def files(
        self, month: date, tables: Iterable[str], *, seconds: float | None = None
    ) -> AbstractContextManager[Mapping[str, Path]]:
        """Return local files of a month by table; of `tables`, those that the month has.

        They stay as long as the context. Fetching them takes no longer than these seconds.
        """

    def verify(self, month: date, manifest: Manifest) -> None:
        """Read all files of a month from the store and compare their checksums."""

    def months(self) -> list[date]:
        """Return the months of the store, oldest first."""

    def delete(self, month: date) -> None:
        """Delete a month."""

    def probe(self) -> None:
        """Write, read and delete something."""

    def identity(self) -> str:
        """Return what two hosts have in common if they see the same store; empty if unknown."""


def format_month(month: date) -> str:
    """Return the name of a month in stores, such as 2026-11."""
    return f"{month:%Y-%m}"


def parse_month(name: str) -> date | None:
    """Return the month with this name; None for other names."""
    try:
        return datetime.strptime(name, "%Y-%m").replace(tzinfo=UTC).date()
    except ValueError:
        return None


def file_name(table: str) -> str:
    return f"{table}.parquet"


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_file(path: Path, content: Content, *, name: str) -> None:
    """Raise `BadArchive` unless a file has its checksum; the message calls the file `name`."""
    try:
        digest = sha256_of(path)
    except OSError as error:
        raise BadArchive(f"{name} cannot be read: {error}") from error
    if digest != content.sha256:
        raise changed_file(name)


def changed_file(name: str) -> BadArchive:
    return BadArchive(f"{name} is not what was written: its checksum differs.")
