"""Parse values of payloads whose types cannot be trusted."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from apps.statusboard.feeds.base import UnreadablePayload


def json_of(body: bytes, what: str) -> dict[str, Any]:
    """Parse a JSON object. Raises `UnreadablePayload`."""
    try:
        payload = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise UnreadablePayload(f"invalid JSON: {error}") from error
    if not isinstance(payload, dict):
        raise UnreadablePayload(f"not {what}: a JSON object is expected")
    return payload


def json_lines(body: bytes, what: str) -> list[dict[str, Any]]:
    """Parse JSON objects, one per line, or a single one over several lines.

    Raises `UnreadablePayload`.
    """
    lines = [line for line in body.splitlines() if line.strip()]
    try:
        rows = [json.loads(line) for line in lines]
    except (ValueError, RecursionError):
        return [json_of(body, what)]
    objects = [row for row in rows if isinstance(row, dict)]
    if not objects:
        raise UnreadablePayload(f"not {what}: JSON objects are expected")
    return objects


def json_documents(body: bytes, what: str) -> list[dict[str, Any]]:
    """Parse concatenated JSON objects, each over any number of lines.

    Raises `UnreadablePayload`.
    """
    text = body.decode(errors="replace").strip()
    documents: list[dict[str, Any]] = []
    decoder = json.JSONDecoder()
    try:
        while text:
            document, end = decoder.raw_decode(text)
            if not isinstance(document, dict):
                raise UnreadablePayload(f"not {what}: JSON objects are expected")
            documents.append(document)
            text = text[end:].lstrip()
    except (ValueError, RecursionError) as error:
        raise UnreadablePayload(f"invalid JSON: {error}") from error
    return documents


def variables(body: bytes, prefix: str) -> dict[str, str]:
    """Parse `NAME=value` lines or a JSON object; names become upper case and lose their prefix."""
    text = body.decode(errors="replace")
    if text.lstrip().startswith("{"):
        pairs: Mapping[str, Any] = json_of(body, "variables")
    else:
        pairs = _assignments(text)
    named = {}
    for name, value in pairs.items():
        if value is not None:
            named[name.upper().removeprefix(prefix)] = text_of(value)
    return named


def _assignments(text: str) -> dict[str, str]:
    values = {}
    for line in text.splitlines():
        if "=" in line and not line.startswith("#"):
            name, _, value = line.partition("=")
            values[name.strip()] = value.strip()
    return values


def text_of(value: object) -> str:
    """Return text that PostgreSQL can store."""
    if value is None:
        return ""
    return str(value).replace("\0", "").encode("utf-8", "replace").decode()


def texts(value: object) -> dict[str, str]:
    """Return the items of an object as texts; empty if the value is no object."""
    if not isinstance(value, dict):
        return {}
    return {text_of(name): text_of(item) for name, item in value.items()}


def without_empty(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the labels that have a value."""
    return {name: value for name, value in labels.items() if value}


def time_of(value: object) -> datetime | None:
    """Parse an ISO 8601 time with a zone; None if missing or in year 1, Go's zero time.

    Raises `ValueError`.
    """
    if not isinstance(value, str) or not value or value.startswith("0001-"):
        return None
    at = datetime.fromisoformat(_microseconds(value))
    if at.tzinfo is None:
        raise ValueError(f"{value[:40]!r} has no time zone")
    return at.astimezone(UTC)


def epoch(value: object) -> datetime | None:
    """Parse seconds since 1970; None if missing or 0. Raises `ValueError`, `OverflowError`."""
    seconds = float(str(value)) if value not in (None, "") else 0
    return datetime.fromtimestamp(seconds, UTC) if seconds else None


def _microseconds(value: str) -> str:
    """Truncate Go's nanoseconds to microseconds, which every Python version parses."""
    head, dot, tail = value.partition(".")
    digits = len(tail) - len(tail.lstrip("0123456789"))
    if not dot:
        return value
    return f"{head}.{tail[:digits][:6]:0<6}{tail[digits:]}"
