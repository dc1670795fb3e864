"""Batches of captured jobs as compressed bytes.

The reader packs a batch once; it is journaled and handed over unchanged. A line of JSON describes
the jobs; their contents follow, one after another. Parts that jobs have in common, such as most of
their environments, are stored once.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple, Self, TypeVar

from zstandard import ZstdCompressor, ZstdDecompressor, ZstdError, frame_content_size

from apps.clusters.schedulers.base import Identity
from capture.wire.entry import CapturedJob

VERSION = 1
LEVEL = 3
BATCH_JOBS = 1000  # at most

MEDIA_TYPE = "application/vnd.opsportal.jobs"
# Limits of a batch that comes from elsewhere: one job whose script and environment are each as
# large as a spool's reader takes (64 MB) must pass.
MOST_JOBS = 5_000
MOST_BYTES = 144 * 1024 * 1024  # decompressed
MOST_HEAD_BYTES = 8 * 1024 * 1024
MOST_SENT_BYTES = 80 * 1024 * 1024  # compressed
_WINDOW_BYTES = 8 * 1024 * 1024  # what a sender may make the receiver hold to decompress

T = TypeVar("T")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_TEXTS = tuple(field.name for field in fields(CapturedJob) if field.type in {str, "str"})
_NO_TEXTS = dict.fromkeys(_TEXTS, "")
_texts_of = attrgetter(*_TEXTS)
_contents_of = attrgetter("script", "environment", "description")


class Sighting(NamedTuple):
    """A job in the spool, in the order of the journal's table `seen`.

    `submitted_at` is in microseconds since 1970; the cluster, the job ID and it identify a job.
    """

    cluster: str
    job_id: str
    submitted_at: int
    inode: int
    modified_ns: int


class BadBatch(ValueError):
    """The received bytes are not a batch of jobs; the message says why."""


class BatchTooLarge(BadBatch):
    """A batch has too many jobs or bytes."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Packed jobs on their way to the journal, and where each of them was seen.

    `captured_at` is the time of the first job, in microseconds since 1970.
    """

    sightings: tuple[Sighting, ...]
    captured_at: int
    size_bytes: int
    content: bytes

    @classmethod
    def of(cls, captured: Sequence[tuple[CapturedJob, Identity]]) -> Self:
        """Pack jobs, which must be at least one."""
        jobs = [job for job, _ in captured]
        return cls(
            sightings=tuple(_sighting(job, identity) for job, identity in captured),
            captured_at=microseconds(jobs[0].captured_at),
            size_bytes=sum(job.size_bytes for job in jobs),
            content=pack(jobs),
        )


def _sighting(job: CapturedJob, identity: Identity) -> Sighting:
    return Sighting(
        cluster=job.cluster,
        job_id=job.job_id,
        submitted_at=microseconds(job.submitted_at),
        inode=identity.inode,
        modified_ns=identity.modified_ns,
    )


def pack(jobs: Iterable[CapturedJob]) -> bytes:
    """Return the jobs as one compressed piece."""
    jobs = list(jobs)
    head = {"version": VERSION, "jobs": [_described(job) for job in jobs]}
    line = json.dumps(head, separators=(",", ":")).encode()
    return ZstdCompressor(level=LEVEL).compress(
        b"".join([line, b"\n", *chain.from_iterable(map(_contents_of, jobs))])
    )


def unpack(pieces: Iterable[bytes]) -> list[CapturedJob]:
    """Return the jobs of pieces that this host has packed."""
    jobs: list[CapturedJob] = []
    for piece in pieces:
        whole = ZstdDecompressor().decompress(piece)
        end = whole.index(b"\n")
        jobs += jobs_of(json.loads(whole[:end])["jobs"], memoryview(whole)[end + 1 :])
    return jobs


def states_its_size(batch: bytes) -> bool:
    """Return whether `unpack` can read this piece: a stream has no size in its header."""
    return frame_content_size(batch) >= 0


def unpack_untrusted(batch: bytes) -> list[CapturedJob]:
    """Return the jobs of a packed batch from another host, within limits. Raises `BadBatch`."""
    try:
        with ZstdDecompressor(max_window_size=_WINDOW_BYTES).stream_reader(
            batch, read_across_frames=False
        ) as reader:
            data = reader.read(MOST_BYTES + 1)
    except ZstdError as error:
        raise BadBatch(f"it cannot be decompressed: {error}") from error
    if len(data) > MOST_BYTES:
        raise BatchTooLarge(f"it has more than {MOST_BYTES:,} bytes")
    line, _, contents = data.partition(b"\n")
    if len(line) > MOST_HEAD_BYTES:
        raise BatchTooLarge(f"the description of its jobs has more than {MOST_HEAD_BYTES:,} bytes")
    try:
        head = json.loads(line)
        if head["version"] != VERSION:
            raise BadBatch(
                f"it is of version {head['version']!r}, this portal reads version {VERSION}"
            )
        described = head["jobs"]
        if len(described) > MOST_JOBS:
            raise BatchTooLarge(f"it has more than {MOST_JOBS:,} jobs")
        return jobs_of(described, memoryview(contents))
    except (
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as error:
        if isinstance(error, BadBatch):
            raise
        raise BadBatch(
            f"its first line does not describe jobs: {type(error).__name__}: {str(error)[:200]}"
        ) from error


def jobs_of(described: Sequence[dict[str, Any]], contents: memoryview) -> list[CapturedJob]:
    """Return the jobs that the first line of a batch describes.

    Raises `BadBatch`, or an error such as `TypeError` if the line does not describe jobs.
    """
    jobs = []
    offset = 0
    for description in described:
        values: dict[str, Any] = dict(_NO_TEXTS)
        for name in _TEXTS:
            if name in description:
                values[name] = _checked(str, description[name])

        parts = []
        for size in description["sizes"]:
            if not 0 <= _checked(int, size) <= len(contents) - offset:
                raise BadBatch("its bytes are not those that it describes")
            parts.append(bytes(contents[offset : offset + size]))
            offset += size
        values["script"], values["environment"], values["description"] = parts

        values["submitted_at"] = moment_of(_checked(int, description["submitted_at"]))
        values["captured_at"] = moment_of(_checked(int, description["captured_at"]))
        values["masked_names"] = tuple(
            _checked(str, name) for name in description.get("masked_names", ())
        )
        jobs.append(CapturedJob(**values))

    if offset != len(contents):
        raise BadBatch("its bytes are not those that it describes")
    return jobs


def microseconds(moment: datetime) -> int:
    return (moment - _EPOCH) // _MICROSECOND


def moment_of(count: int) -> datetime:
    return _EPOCH + timedelta(microseconds=count)


def _described(job: CapturedJob) -> dict[str, Any]:
    described: dict[str, Any] = {
        name: value for name, value in zip(_TEXTS, _texts_of(job), strict=True) if value
    }
    described["submitted_at"] = microseconds(job.submitted_at)
    described["captured_at"] = microseconds(job.captured_at)
    if job.masked_names:
        described["masked_names"] = job.masked_names
    described["sizes"] = [len(content) for content in _contents_of(job)]
    return described


def _checked(kind: type[T], value: Any) -> T:
    if type(value) is not kind:
        raise TypeError(f"{value!r:.50} is no {kind.__name__}")
    return value
