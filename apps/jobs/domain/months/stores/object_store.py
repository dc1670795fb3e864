"""Archived months in an S3-compatible object store, with local copies for DuckDB.

The objects of a month are named after their content. One small object, the manifest, lists those
that the month consists of, so writing it replaces the month.
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
    format_month,
    parse_month,
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

#: Calls of pages run in separate processes, which can be killed: the time limits of the client only
#: limit how long the server sends nothing. The processes that run DuckDB never get the keys.
POOL = BoundedPool(memory_bytes=2 * 1024**3)
PROBE_SECONDS = 15.0
#: How long pages do not try again after a failure, so that a page does not wait for each month.
PAUSE_SECONDS = 10.0
#: Attempts of background work.
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
        return f"{self.name}/{format_month(month)}"

    def new_directory(self, month: date) -> Path:
        new = self._local / "new" / format_month(month)
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(parents=True, mode=0o700)
        return new

    def put_in_place(self, month: date, new: Path, manifest: Manifest) -> None:
        with self._bucket_of_worker() as bucket:
            names = set()
            for table, content in manifest.tables.items():
                path = new / file_name(table)
                name = object_name(format_month(month), table, content.sha256)
                bucket.upload(path, name)
                if bucket.size(name) != path.stat().st_size:
                    raise changed_file(f"{self.name}/{name}")
                names.add(name)
            # If the process is killed before this, the old month stays; after it, the new one.
            published = f"{format_month(month)}/{MANIFEST}"
            bucket.write_text(published, manifest.to_json())
            for name in bucket.sizes(format_month(month)).keys() - names - {published}:
                bucket.delete(name)
        shutil.rmtree(new, ignore_errors=True)

    def read_manifest(self, month: date) -> Manifest:
        with self._bucket_of_worker() as bucket:
            return self._parse_manifest(
                bucket.read_text(f"{format_month(month)}/{MANIFEST}"), month
            )

    @contextmanager
    def files(
        self, month: date, tables: Iterable[str], *, seconds: float | None = None
    ) -> Iterator[Mapping[str, Path]]:
        names = list(tables)
        manifest = self._fetch(month, names, seconds)
        existing = [table for table in names if table in manifest.tables]
        try:
            with self._cache.held([manifest.tables[table].sha256 for table in existing]) as paths:
                yield dict(zip(existing, paths, strict=True))
        except NotCached:
            raise BadArchive(
                f"{self._cache.directory} is too small for {self.place(month)}. Raise "
                "JOB_ARCHIVE_CACHE_MAX_BYTES, or try again in a moment."
            ) from None

    def verify(self, month: date, manifest: Manifest) -> None:
        with self._bucket_of_worker() as bucket:
            for table, content in manifest.tables.items():
                name = object_name(format_month(month), table, content.sha256)
                if bucket.sha256(name) != content.sha256:
                    raise changed_file(f"{self.name}/{name}")

    def months(self) -> list[date]:
        with self._bucket_of_worker() as bucket:
            names = bucket.sizes()
        months = []
        for name in sorted(names):
            directory, _, file = name.partition("/")
            month = parse_month(directory)
            if month and file == MANIFEST:
                months.append(month)
        return months

    def delete(self, month: date) -> None:
        with self._bucket_of_worker() as bucket:
            # Without its manifest, a month does not exist, even if a kill leaves other objects.
            bucket.delete(f"{format_month(month)}/{MANIFEST}")
            for name in bucket.sizes(format_month(month)):
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
        """Put the files of `tables` of a month in the cache; return the manifest of the month.

        If the month is replaced meanwhile, its old objects are gone, and it is read again.
        """
        answer = self._fetch_once(month, tables, seconds)
        if answer.missing and not answer.missing.endswith(MANIFEST):
            answer = self._fetch_once(month, tables, seconds)
        if answer.missing:
            raise BadArchive(f"{self.name}/{answer.missing} is missing.")
        if answer.is_unavailable:
            raise self._unavailable(answer.problem)
        if answer.problem:
            raise BadArchive(f"{self.place(month)} cannot be read: {answer.problem}")
        return self._parse_manifest(answer.text, month)

    def _fetch_once(
        self, month: date, tables: Sequence[str], seconds: float | None
    ) -> ProcessResult:
        if seconds is None:
            return fetch_month(
                self._patient, self._cache, format_month(month), tables, is_careful=True
            )
        if time.monotonic() < self._paused_until:
            return ProcessResult(problem=self._failure, is_unavailable=True)
        arguments = (self._target, self._cache, format_month(month), tables)
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

    def _parse_manifest(self, text: str, month: date) -> Manifest:
        try:
            return Manifest.from_json(text)
        except (ValueError, TypeError, KeyError) as error:
            raise BadArchive(f"{self.place(month)}/{MANIFEST} cannot be read: {error}") from error

    @contextmanager
    def _bucket_of_worker(self) -> Iterator[Bucket]:
        """Yield the bucket with the time limits of background work."""
        try:
            yield open_bucket(self._patient)
        except Missing as error:
            raise BadArchive(f"{self.name}/{error} is missing.") from None
        except Unavailable as error:
            raise self._unavailable(str(error)) from None

    def _unavailable(self, reason: str) -> StoreUnavailable:
        return StoreUnavailable(f"{self.name} at {self._server}: {reason}.")
