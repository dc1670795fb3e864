"""Objects of an S3-compatible store, by pyarrow, and what a process of a pool does with them.

It needs no settings. pyarrow and the client that it brings take 90 MB, so they are imported late.
"""

import hashlib
import json
import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlsplit

from apps.core.http.bucket_url import ObjectStoreURL
from apps.jobs.domain.months.stores.base import MANIFEST, changed_file
from apps.jobs.domain.months.stores.cache import FileCache, WrongContent

CONNECT_SECONDS = 2.0
#: A call fails if it receives no byte for this long.
SILENT_SECONDS = 4.0
CHUNK = 8 * 1024**2


class Unavailable(Exception):
    """The store does not answer, or rejects the portal; the message says why."""


class Missing(Exception):
    """There is no such object; the message is its name."""


@dataclass(frozen=True)
class BucketTarget:
    """The store and the keys for it. `ca` is a PEM file."""

    url: ObjectStoreURL
    access_key: str = field(repr=False)
    secret_key: str = field(repr=False)
    ca: str = ""
    #: How often a call is made before it has failed.
    attempts: int = 1


class Bucket:
    """The objects below a prefix, by their names without it. Threads may share it.

    Each method raises `Unavailable`, and `Missing` for an object that is not there.
    """

    def __init__(self, target: BucketTarget) -> None:
        from pyarrow.fs import AwsStandardS3RetryStrategy, S3FileSystem

        url = target.url
        options: dict[str, Any] = {}
        if url.endpoint:
            endpoint = urlsplit(url.endpoint)
            options |= {"endpoint_override": endpoint.netloc, "scheme": endpoint.scheme}
        if target.ca:
            options["tls_ca_file_path"] = target.ca
        self._files = S3FileSystem(
            access_key=target.access_key,
            secret_key=target.secret_key,
            region=url.region,
            connect_timeout=CONNECT_SECONDS,
            request_timeout=SILENT_SECONDS,
            retry_strategy=AwsStandardS3RetryStrategy(max_attempts=target.attempts),
            # A small object is one request, and so is never there by half.
            allow_delayed_open=True,
            **options,
        )
        self._root = f"{url.bucket}/{url.prefix}".rstrip("/")

    def read_text(self, name: str) -> str:
        with _named_errors(name), self._files.open_input_stream(self._path(name)) as source:
            content: bytes = source.read()
        return content.decode()

    def write_text(self, name: str, text: str) -> None:
        with _named_errors(name), self._files.open_output_stream(self._path(name)) as sink:
            sink.write(text.encode())

    def upload(self, path: Path, name: str) -> None:
        with (
            path.open("rb") as source,
            _named_errors(name),
            self._files.open_output_stream(self._path(name)) as sink,
        ):
            shutil.copyfileobj(source, sink, CHUNK)

    def download(self, name: str, into: BinaryIO) -> None:
        """Append what an open file has not yet of an object."""
        with _named_errors(name):
            source = self._files.open_input_file(self._path(name))
        with source:
            source.seek(into.tell())
            while chunk := self._next_chunk(source, name):
                into.write(chunk)

    def sha256(self, name: str) -> str:
        """Return the checksum of an object, read as a whole."""
        digest = hashlib.sha256()
        with _named_errors(name):
            source = self._files.open_input_stream(self._path(name))
        with source:
            while chunk := self._next_chunk(source, name):
                digest.update(chunk)
        return digest.hexdigest()

    def size(self, name: str) -> int:
        with _named_errors(name):
            info = self._files.get_file_info(self._path(name))
        if not info.is_file:
            raise Missing(name)
        return int(info.size)

    def sizes(self, below: str = "") -> dict[str, int]:
        """Return the sizes of all objects, or of those below a name, by their names."""
        from pyarrow.fs import FileSelector

        selector = FileSelector(self._path(below), recursive=True, allow_not_found=True)
        with _named_errors(below):
            infos = self._files.get_file_info(selector)
        start = len(self._root) + 1
        return {info.path[start:]: int(info.size) for info in infos if info.is_file}

    def delete(self, name: str) -> None:
        with _named_errors(name), suppress(FileNotFoundError):
            self._files.delete_file(self._path(name))

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}".rstrip("/")

    @staticmethod
    def _next_chunk(source: Any, name: str) -> bytes:
        with _named_errors(name):
            chunk: bytes = source.read(CHUNK)
        return chunk


@contextmanager
def _named_errors(name: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise Missing(name) from None
    except OSError as error:
        # Before it, pyarrow says at length what it was doing.
        text = " ".join(str(error).split())
        reason = text.partition("AWS Error ")[2] or text
        raise Unavailable(reason[:300]) from None


@lru_cache(maxsize=4)
def open_bucket(target: BucketTarget) -> Bucket:
    return Bucket(target)


def object_name(month: str, table: str, sha256: str) -> str:
    """Return the name of a file's object: a file with other content never takes its place."""
    return f"{month}/{table}.{sha256}.parquet"


@dataclass(frozen=True)
class ProcessResult:
    """What a process of the pool found: a text, or why there is none."""

    text: str = ""
    problem: str = ""
    missing: str = ""
    is_unavailable: bool = False


def fetch_month(
    target: BucketTarget,
    cache: FileCache,
    month: str,
    tables: Sequence[str],
    is_careful: bool = False,
) -> ProcessResult:
    """Return the manifest of a month, with the files of `tables` that it has in the cache.

    With `is_careful`, copies that are there already are checked again.
    """
    try:
        bucket = open_bucket(target)
        text = bucket.read_text(f"{month}/{MANIFEST}")
        contents = json.loads(text)["tables"]
        for table in tables:
            if table in contents:
                sha256 = contents[table]["sha256"]
                if is_careful:
                    cache.drop_damaged(sha256)
                _fetch(bucket, cache, object_name(month, table, sha256))
    except Missing as error:
        return ProcessResult(missing=str(error))
    except Unavailable as error:
        return ProcessResult(problem=str(error), is_unavailable=True)
    except WrongContent as error:
        return ProcessResult(problem=str(changed_file(str(error))))
    except (OSError, ValueError, TypeError, KeyError) as error:
        return ProcessResult(problem=f"{type(error).__name__}: {error}")
    return ProcessResult(text)


def _fetch(bucket: Bucket, cache: FileCache, name: str) -> None:
    sha256 = name.split(".")[-2]
    if cache.has(sha256):
        return
    try:
        cache.fill(sha256, bucket.size(name), lambda file: bucket.download(name, file))
    except WrongContent:
        raise WrongContent(name) from None


def probe(target: BucketTarget) -> ProcessResult:
    """Write, list, read and delete an object."""
    name, text = f"probe-{uuid.uuid4().hex}", "probe"
    try:
        bucket = open_bucket(target)
        bucket.write_text(name, text)
        is_listed = name in bucket.sizes()
        is_read = bucket.read_text(name) == text
        bucket.delete(name)
    except (Missing, Unavailable) as error:
        return ProcessResult(problem=str(error), is_unavailable=True)
    if not (is_listed and is_read):
        return ProcessResult(problem="an object that was written is not there")
    return ProcessResult(text)
