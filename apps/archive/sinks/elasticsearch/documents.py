"""A captured job as a document: searchable as text, with bytes that can be restored exactly."""

import base64
import hashlib
import json
from typing import Any

from apps.archive.sinks.facts import with_claimed_facts
from apps.clusters.schedulers.environment import COUNT
from capture.wire.entry import CapturedJob

_MOST_ID_BYTES = 512  # Elasticsearch's limit
_MOST_NAME_LENGTH = 256  # a variable with a longer name cannot be searched by
_WORD = {"type": "keyword", "ignore_above": 1024}
_TEXT = {"type": "text", "norms": False}
_BYTES = {"type": "binary"}
_TIME = {"type": "date"}

MAPPINGS = {
    "dynamic": False,
    "properties": {
        **dict.fromkeys(
            ("cluster", "scheduler", "job_id", "user", "account", "name", "request", "stage"), _WORD
        ),
        **dict.fromkeys(("script_sha256", "environment_sha256", "masked_names", "claimed"), _WORD),
        **dict.fromkeys(("script", "description", "arguments", "caveat"), _TEXT),
        **dict.fromkeys(("script_base64", "environment_base64", "description_base64"), _BYTES),
        **dict.fromkeys(("submitted_at", "captured_at"), _TIME),
        # A single field for all variables. A value together with its name has to fit into a term
        # of 32,766 bytes.
        "environment": {"type": "flattened", "ignore_above": 4096},
    },
}


def document_id(job: CapturedJob) -> str:
    """Return the job's key as the ID of its document, the same for each write.

    Raises `ValueError`.
    """
    text = f"{job.cluster}:{job.job_id}:{job.submitted_at:%Y%m%dT%H%M%S.%fZ}"
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise ValueError("its ID is not UTF-8") from None
    if size > _MOST_ID_BYTES:
        raise ValueError(f"its ID is longer than {_MOST_ID_BYTES} bytes")
    return text


def document(job: CapturedJob) -> dict[str, Any]:
    """Return the job as a document, without empty fields."""
    job, claimed = with_claimed_facts(job)
    fields = {
        "cluster": job.cluster,
        "scheduler": job.scheduler,
        "job_id": job.job_id,
        "submitted_at": job.submitted_at.isoformat(),
        "captured_at": job.captured_at.isoformat(),
        "user": _clean(job.user),
        "account": _clean(job.account),
        "name": _clean(job.name),
        "request": _clean(job.request_key),
        "stage": _clean(job.stage),
        "arguments": _clean(job.arguments),
        "caveat": _clean(job.caveat),
        "claimed": claimed,
        "masked_names": [_clean(name) for name in job.masked_names],
        **_text("script", job.script),
        "script_sha256": hashlib.sha256(job.script).hexdigest(),
        "environment": _variables(job.environment),
        "environment_base64": _base64(job.environment),
        "environment_sha256": hashlib.sha256(job.environment).hexdigest(),
        **_text("description", job.description),
    }
    return {name: value for name, value in fields.items() if value}


def as_json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _text(name: str, content: bytes) -> dict[str, str]:
    """Return content as text; if it is not UTF-8, add the exact bytes in base64."""
    try:
        return {name: content.decode()}
    except UnicodeDecodeError:
        return {name: content.decode(errors="replace"), f"{name}_base64": _base64(content)}


def _variables(environment: bytes) -> dict[str, str | list[str]]:
    """Return values by name; a list of values if a name occurs more than once."""
    values: dict[str, str | list[str]] = {}
    # Decoding the whole environment at once is faster than entry by entry.
    for entry in environment[COUNT.size :].decode(errors="replace").split("\0")[:-1]:
        name, _, value = entry.partition("=")
        earlier = values.get(name)
        if earlier is not None:
            values[name] = [*earlier, value] if isinstance(earlier, list) else [earlier, value]
        elif 0 < len(name) <= _MOST_NAME_LENGTH:
            values[name] = value
    return values


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")


def _clean(text: str) -> str:
    """Replace characters that cannot be encoded, which come from file names that are not UTF-8."""
    return text.encode(errors="backslashreplace").decode()
