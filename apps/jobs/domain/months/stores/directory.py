"""Archived months in a directory, which all hosts see: each month is a directory of files."""

import os
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import date
from pathlib import Path

from apps.jobs.domain.months.stores.base import (
    MANIFEST,
    BadArchive,
    Manifest,
    check_file,
    file_name,
    format_month,
    parse_month,
)

_FORMER = ".old"
_ID = ".directory-id"


class Directory:
    """A store in a directory. A month is replaced by renaming directories."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.name = str(root)

    def place(self, month: date) -> str:
        return str(self.root / format_month(month))

    def new_directory(self, month: date) -> Path:
        new = self.root / f"{format_month(month)}.new"
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(parents=True, mode=0o750)
        return new

    def put_in_place(self, month: date, new: Path, manifest: Manifest) -> None:
        (new / MANIFEST).write_text(manifest.to_json())
        for path in (*new.iterdir(), new):
            _sync(path)
        final = self.root / format_month(month)
        former = self._former(month)
        if final.exists():
            shutil.rmtree(former, ignore_errors=True)
            final.rename(former)
        # A process that is killed here leaves the former month, which is read until then.
        new.rename(final)
        _sync(self.root)
        shutil.rmtree(former, ignore_errors=True)

    def read_manifest(self, month: date) -> Manifest:
        directory = self._current(month)
        try:
            return Manifest.from_json((directory / MANIFEST).read_text())
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise BadArchive(f"{directory} cannot be read: {error}") from error

    @contextmanager
    def files(
        self, month: date, tables: Iterable[str], *, seconds: float | None = None
    ) -> Iterator[Mapping[str, Path]]:
        directory = self._current(month).resolve()
        paths = {table: directory / file_name(table) for table in tables}
        yield {table: path for table, path in paths.items() if path.exists()}

    def verify(self, month: date, manifest: Manifest) -> None:
        directory = self._current(month)
        for table, content in manifest.tables.items():
            path = directory / file_name(table)
            check_file(path, content, name=str(path))

    def months(self) -> list[date]:
        months = set()
        for path in self.root.glob(f"*/{MANIFEST}"):
            if month := parse_month(path.parent.name.removesuffix(_FORMER)):
                months.add(month)
        return sorted(months)

    def delete(self, month: date) -> None:
        for directory in (self._former(month), self.root / format_month(month)):
            # Without its manifest, it is no month: a kill leaves nothing half there.
            (directory / MANIFEST).unlink(missing_ok=True)
            shutil.rmtree(directory, ignore_errors=True)

    def probe(self) -> None:
        path = self.root / f".probe-{uuid.uuid4().hex}"
        path.write_text("probe")
        path.read_text()
        path.unlink()

    def identity(self) -> str:
        """Return the ID in this directory; the first who asks writes it."""
        path = self.root / _ID
        with suppress(OSError):
            with suppress(FileExistsError), path.open("x") as file:
                file.write(uuid.uuid4().hex)
            return path.read_text()
        return ""

    def _current(self, month: date) -> Path:
        """Return the directory of a month, or of its former state, if a kill has left just that."""
        final = self.root / format_month(month)
        former = self._former(month)
        return former if former.exists() and not final.exists() else final

    def _former(self, month: date) -> Path:
        return self.root / f"{format_month(month)}{_FORMER}"


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
