"""How captured jobs travel to a portal: a line of JSON that describes them, then their bytes, one after another."""

import json
from collections.abc import Sequence
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any

from zstandard import ZstdCompressor, ZstdDecompressor, ZstdError

from apps.archive.capture.entry import CapturedJob

MEDIA_TYPE = "application/vnd.opsportal.jobs"
VERSION = 1
MOST_JOBS = 5_000
MOST_BYTES = 64 * 1024 * 1024  # of a batch, decompressed
MOST_HEAD_BYTES = 8 * 1024 * 1024
MOST_SENT_BYTES = 32 * 1024 * 1024  # of a batch, compressed

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_WINDOW_BYTES = 8 * 1024 * 1024  # what a sender may make the receiver hold to decompress
_BYTES = ("script", "environment", "description")
_TIMES = ("submitted_at", "captured_at")
_TEXTS = tuple(field.name for field in fields(CapturedJob) if field.type in {str, "str"})


class BadBatch(ValueError):
    """What was sent is no batch of jobs; the message says why."""


class BatchTooLarge(BadBatch):
    """A batch has too many jobs or bytes."""


def pack(jobs: Sequence[CapturedJob]) -> bytes:
    """Return the jobs as a compressed batch."""
    head = {"version": VERSION, "jobs": [_described(job) for job in jobs]}
    contents = b"".join(getattr(job, name) for job in jobs for name in _BYTES)
    return ZstdCompressor(level=3).compress(json.dumps(head, separators=(",", ":")).encode() + b"\n" + contents)


def unpack(batch: bytes) -> list[CapturedJob]:
    """Return the jobs of a compressed batch, which may come from anybody. Raises `BadBatch`."""
    try:
        with ZstdDecompressor(max_window_size=_WINDOW_BYTES).stream_reader(batch, read_across_frames=False) as reader:
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
            raise BadBatch(f"it is of version {head['version']!r}, this portal reads version {VERSION}")
        described = head["jobs"]
        if len(described) > MOST_JOBS:
            raise BatchTooLarge(f"it has more than {MOST_JOBS:,} jobs")
        return _jobs(described, memoryview(contents))
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        if isinstance(error, BadBatch):
            raise
        raise BadBatch(f"its first line does not describe jobs: {type(error).__name__}: {str(error)[:200]}") from error


def _described(job: CapturedJob) -> dict[str, Any]:
    facts = {name: value for name in _TEXTS if (value := getattr(job, name))}
    times = {name: (getattr(job, name) - _EPOCH) // _MICROSECOND for name in _TIMES}
    return {**facts, **times, "masked_names": job.masked_names, "sizes": [len(getattr(job, name)) for name in _BYTES]}


def _jobs(described: list[dict[str, Any]], contents: memoryview) -> list[CapturedJob]:
    jobs = []
    for each in described:
        values: dict[str, Any] = {name: _text(each.get(name, "")) for name in _TEXTS}
        values |= {name: _EPOCH + _MICROSECOND * _whole(each[name]) for name in _TIMES}
        for name, size in zip(_BYTES, each["sizes"], strict=True):
            if not 0 <= _whole(size) <= len(contents):
                raise BadBatch("its bytes are not those that it describes")
            values[name], contents = bytes(contents[:size]), contents[size:]
        jobs.append(CapturedJob(**values, masked_names=tuple(map(_text, each.get("masked_names", ())))))
    if contents:
        raise BadBatch("its bytes are not those that it describes")
    return jobs


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("a text is none")
    return value


def _whole(value: Any) -> int:
    if type(value) is not int:
        raise TypeError("a number is none")
    return value
