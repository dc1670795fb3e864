"""Archived months in an S3-compatible object store, with local copies for DuckDB.

The objects of a month are named after their content, and one small object, the manifest, names
those that are the month: writing it replaces the month.
"""

import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from pathlib import Path

from apps.core.bounded_pool import BoundedPool, BudgetExceeded
from apps.jobs.domain.months.stores.base import (
    MANIFEST,
    BadArchive,
    Manifest,
    StoreUnavailable,
    changed_file,
    file_name,
    month_named,
    name_of,
)
from apps.jobs.domain.months.stores.bucket import (
    Bucket,
    BucketTarget,
    Missing,
    ProcessResult,
    Unavailable,
    fetch_month,
    object_name,
    open_bucket,
    probe,
)
from apps.jobs.domain.months.stores.cache import FileCache, NotCached

#: Calls of pages run in processes of their own, which can be ended: the client's time limits are
#: for silence alone. Those that run DuckDB never get the keys.
POOL = BoundedPool(memory_bytes=2 * 1024**3)
PROBE_SECONDS = 15.0
#: How long pages do not ask again after a failure: else each of many months would wait for its own.
PAUSE_SECONDS = 10.0
#: For background work.
ATTEMPTS = 4


class ObjectStore:
    """A store in a bucket. `local` is a directory for local copies and new files."""

    def __init__(self, target: BucketTarget, *, local: Path, max_bytes: int) -> None:
        self._target = target
        self._patient = replace(target, attempts=ATTEMPTS)
        self._local = local
        self._cache = FileCache(local / "files", max_bytes)
        self._paused_until = 0.0
        self._failure = ""
        self.name = target.url.name
        self._server = target.url.server

    def place(self, month: date) -> str:
        return f"{self.name}/{name_of(month)}"

    def new_directory(self, month: date) -> Path:
        new = self._local / "new" / name_of(month)
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(parents=True, mode=0o700)
        return new

    def put_in_place(self, month: date, new: Path, manifest: Manifest) -> None:
        with self._opened() as bucket:
            names = set()
            for table, content in manifest.tables.items():
                path = new / file_name(table)
                name = object_name(name_of(month), table, content.sha256)
                bucket.upload(path, name)
                if bucket.size(name) != path.stat().st_size:
                    raise changed_file(f"{self.name}/{name}")
                names.add(name)
            # A process that is killed before this leaves the former month, and after it the new.
            published = f"{name_of(month)}/{MANIFEST}"
            bucket.write_text(published, manifest.to_json())
            for name in bucket.sizes(name_of(month)).keys() - names - {published}:
                bucket.delete(name)
        shutil.rmtree(new, ignore_errors=True)

    def read_manifest(self, month: date) -> Manifest:
        with self._opened() as bucket:
            return self._parsed(bucket.read_text(f"{name_of(month)}/{MANIFEST}"), month)

    @contextmanager
    def files(
        self, month: date, tables: Iterable[str], *, seconds: float | None = None
    ) -> Iterator[Mapping[str, Path]]:
        names = list(tables)
        manifest = self._fetch(month, names, seconds)
        held = [table for table in names if table in manifest.tables]
        try:
            with self._cache.held([manifest.tables[table].sha256 for table in held]) as paths:
                yield dict(zip(held, paths, strict=True))
        except NotCached:
            raise BadArchive(
                f"{self._cache.directory} is too small for {self.place(month)}. Raise "
                "JOB_ARCHIVE_CACHE_MAX_BYTES, or try again in a moment."
            ) from None

    def verify(self, month: date, manifest: Manifest) -> None:
        with self._opened() as bucket:
            for table, content in manifest.tables.items():
                name = object_name(name_of(month), table, content.sha256)
                if bucket.sha256(name) != content.sha256:
                    raise changed_file(f"{self.name}/{name}")

    def months(self) -> list[date]:
        with self._opened() as bucket:
            names = bucket.sizes()
        months = []
        for name in sorted(names):
            directory, _, file = name.partition("/")
            month = month_named(directory)
            if month and file == MANIFEST:
                months.append(month)
        return months

    def delete(self, month: date) -> None:
        with self._opened() as bucket:
            # Without its manifest, it is no month: a kill leaves nothing half there.
            bucket.delete(f"{name_of(month)}/{MANIFEST}")
            for name in bucket.sizes(name_of(month)):
                bucket.delete(name)

    def probe(self) -> None:
        try:
            answer = POOL.call(probe, self._target, seconds=PROBE_SECONDS)
        except BudgetExceeded as error:
            raise self._unavailable(str(error)) from None
        if answer.problem:
            raise self._unavailable(answer.problem)

    def identity(self) -> str:
        return f"{self.name} at {self._server}"

    def _fetch(self, month: date, tables: Sequence[str], seconds: float | None) -> Manifest:
        """Return the manifest of a month, whose files of `tables` are in the cache now.

        If the month is replaced meanwhile, its former objects are gone: then it is read once more.
        """
        answer = self._ask(month, tables, seconds)
        if answer.missing and not answer.missing.endswith(MANIFEST):
            answer = self._ask(month, tables, seconds)
        if answer.missing:
            raise BadArchive(f"{self.name}/{answer.missing} is missing.")
        if answer.is_unavailable:
            raise self._unavailable(answer.problem)
        if answer.problem:
            raise BadArchive(f"{self.place(month)} cannot be read: {answer.problem}")
        return self._parsed(answer.text, month)

    def _ask(self, month: date, tables: Sequence[str], seconds: float | None) -> ProcessResult:
        if seconds is None:
            return fetch_month(self._patient, self._cache, name_of(month), tables, is_careful=True)
        if time.monotonic() < self._paused_until:
            return ProcessResult(problem=self._failure, is_unavailable=True)
        arguments = (self._target, self._cache, name_of(month), tables)
        try:
            answer = POOL.call(fetch_month, *arguments, seconds=seconds)
        except BudgetExceeded as error:
            raise BadArchive(
                f"{self.place(month)} is not fetched yet: {error}. What has come is kept: try "
                "again in a moment."
            ) from None
        if answer.is_unavailable:
            self._failure = answer.problem
            self._paused_until = time.monotonic() + PAUSE_SECONDS
        return answer

    def _parsed(self, text: str, month: date) -> Manifest:
        try:
            return Manifest.from_json(text)
        except (ValueError, TypeError, KeyError) as error:
            raise BadArchive(f"{self.place(month)}/{MANIFEST} cannot be read: {error}") from error

    @contextmanager
    def _opened(self) -> Iterator[Bucket]:
        """Yield the bucket, for background work."""
        try:
            yield open_bucket(self._patient)
        except Missing as error:
            raise BadArchive(f"{self.name}/{error} is missing.") from None
        except Unavailable as error:
            raise self._unavailable(str(error)) from None

    def _unavailable(self, reason: str) -> StoreUnavailable:
        return StoreUnavailable(f"{self.name} at {self._server}: {reason}.")
