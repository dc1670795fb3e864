"""A job as a Kafka message: key, headers and a JSON value; docs/kafka.md has the schema.

The same job always gives the same message, so that consumers recognise duplicates by key and
`submitted_at`.
"""

import json
from base64 import b64encode
from collections.abc import Sequence
from datetime import UTC, datetime

import orjson

from capture.wire.entry import CapturedJob

VERSION = 1

Headers = list[tuple[str, str | bytes | None]]
_VERSION_HEADER = ("version", str(VERSION).encode())


def key(job: CapturedJob) -> bytes:
    """Return the key; messages with one cluster and job ID go to one partition, in order."""
    return _utf8(f"{job.cluster}/{job.job_id}")


def headers(job: CapturedJob, claimed: Sequence[str] = ()) -> Headers:
    """Return headers to select messages by without reading the value; empty facts are left out."""
    facts = {
        "cluster": job.cluster,
        "scheduler": job.scheduler,
        "job_id": job.job_id,
        "submitted_at": _time(job.submitted_at),
        "user": job.user,
        "account": job.account,
        "request": job.request_key,
        "stage": job.stage,
        "claimed": " ".join(claimed),
    }
    return [_VERSION_HEADER, *((name, _utf8(fact)) for name, fact in facts.items() if fact)]


def value(job: CapturedJob, claimed: Sequence[str] = ()) -> bytes:
    """Return the whole job as JSON in UTF-8.

    The facts named in `claimed` are known only from the environment.
    """
    message = {
        "version": VERSION,
        "cluster": job.cluster,
        "scheduler": job.scheduler,
        "job_id": job.job_id,
        "submitted_at": _time(job.submitted_at),
        "captured_at": _time(job.captured_at),
        "user": job.user,
        "account": job.account,
        "name": job.name,
        "request": job.request_key,
        "stage": job.stage,
        "arguments": job.arguments,
        "caveat": job.caveat,
        "claimed": claimed,
        "masked_names": job.masked_names,
        "script": _content(job.script),
        "environment": _content(job.environment),
        "description": _content(job.description),
    }
    try:
        return orjson.dumps(message)
    except orjson.JSONEncodeError:  # a lone surrogate, which UTF-8 cannot encode
        return json.dumps(message).encode()


def _content(content: bytes) -> dict[str, str]:
    try:
        return {"encoding": "utf-8", "content": content.decode()}
    except UnicodeDecodeError:
        return {"encoding": "base64", "content": b64encode(content).decode()}


def _time(moment: datetime) -> str:
    return (moment if moment.tzinfo is UTC else moment.astimezone(UTC)).isoformat(
        "T", "microseconds"
    )


def _utf8(text: str) -> bytes:
    """Return text as UTF-8, with lone surrogates escaped."""
    return text.encode("utf-8", "backslashreplace")
