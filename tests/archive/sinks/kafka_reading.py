"""Reads jobs from a topic as docs/kafka.md tells consumers to."""

import base64
import json
from collections.abc import Iterable
from datetime import datetime

from confluent_kafka import Message

from capture.wire.entry import CapturedJob


def jobs_of(messages: Iterable[Message]) -> list[CapturedJob]:
    """Return each job once, by key and header."""
    jobs: dict[tuple[bytes, bytes], bytes] = {}
    for message in messages:
        identity = (message.key(), dict(message.headers())["submitted_at"])
        value = jobs.setdefault(identity, message.value())
        assert value == message.value(), f"two contents of {identity}"
    return [job_of(value) for value in jobs.values()]


def job_of(value: bytes) -> CapturedJob:
    read = json.loads(value)
    assert read["version"] == 1
    read |= dict.fromkeys(read["claimed"], "")  # as the environment says: no facts of the scheduler
    return CapturedJob(
        cluster=read["cluster"],
        scheduler=read["scheduler"],
        job_id=read["job_id"],
        submitted_at=datetime.fromisoformat(read["submitted_at"]),
        captured_at=datetime.fromisoformat(read["captured_at"]),
        script=content_of(read["script"]),
        environment=content_of(read["environment"]),
        description=content_of(read["description"]),
        request_key=read["request"],
        stage=read["stage"],
        masked_names=tuple(read["masked_names"]),
        arguments=read["arguments"],
        user=read["user"],
        account=read["account"],
        name=read["name"],
        caveat=read["caveat"],
    )


def content_of(part: dict[str, str]) -> bytes:
    if part["encoding"] == "utf-8":
        return part["content"].encode()
    return base64.b64decode(part["content"], validate=True)
