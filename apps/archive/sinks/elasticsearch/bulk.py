"""Send documents by the bulk API and return a result per document.

If the server is overloaded, requests get smaller.
"""

import re
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from apps.archive.sinks.base import SinkUnavailable

MOST_DOCUMENTS = 500
MOST_BYTES = 8 * 1024 * 1024
DEFAULT_LIMIT_BYTES = 100 * 1024 * 1024  # Elasticsearch's default of http.max_content_length
PATIENCE_SECONDS = 5.0

_FIRST_DELAY_SECONDS = 0.1
_LONGEST_DELAY_SECONDS = 2.0
_BAD_REQUEST = 400
_MISSING = 404
_CONFLICT = 409
_TOO_LARGE = 413
_BUSY = 429
_LONGEST_REASON = 500
# These errors also have status 400 but are not the document's fault: the cluster has reached its
# limit of shards, so the index cannot be created, or the alias of the indices is the name of one.
_FAULTS_OF_THE_CLUSTER = {"validation_exception", "invalid_alias_name_exception"}
_PRESSURE = re.compile(r"operation_bytes=(\d+), max_\w*bytes=(\d+)")


@dataclass(frozen=True, slots=True)
class Operation:
    """One document to index, as the two lines of a bulk request, or to delete, as its one line.

    `position` is the index of its job in the caller's sequence.
    """

    position: int
    lines: bytes


class BulkRejected(Exception):
    """The server rejected a whole request."""

    def __init__(self, status: int, error: Mapping[str, Any]) -> None:
        super().__init__(reason_of(error))
        self.status = status
        self.error = error


Send = Callable[[bytes], Mapping[str, Any]]
"""Sends a bulk request and returns the response. Raises `BulkRejected` or `SinkUnavailable`."""


class Bulk:
    """Indexes documents in bulk, and remembers between calls how much the server accepts at once.

    `elasticsearch.helpers.streaming_bulk` cannot do this: it repeats a rejected request unchanged,
    and gives up after a fixed number of attempts. The tests of this module compare the two.
    """

    def __init__(self, send: Send, *, wait: Callable[[float], None] = time.sleep) -> None:
        self._send = send
        self._wait = wait
        self._most = MOST_DOCUMENTS
        self.limit_bytes = DEFAULT_LIMIT_BYTES

    def write(self, operations: Sequence[Operation]) -> dict[int, str]:
        """Index all documents; return the reasons for rejected documents, by position.

        Raises `SinkUnavailable`.
        """
        refused: dict[int, str] = {}
        left = deque(operations)
        tries = 0
        waited = 0.0
        while left:
            part = self._take(left)
            busy, reason = self._write_part(part, refused)
            left.extendleft(reversed(busy))
            if len(busy) < len(part):
                tries, waited = 0, 0.0
            if not reason:
                continue
            delay = min(_FIRST_DELAY_SECONDS * 2.0**tries, _LONGEST_DELAY_SECONDS)
            if waited + delay > PATIENCE_SECONDS:
                raise SinkUnavailable(f"too busy: {reason}")
            self._wait(delay)
            tries, waited = tries + 1, waited + delay
        return refused

    def send_less(self) -> None:
        """Send half as much at once from now on."""
        self._most = max(1, self._most // 2)

    def _take(self, left: deque[Operation]) -> list[Operation]:
        part = [left.popleft()]
        size = len(part[0].lines)
        while (
            left
            and len(part) < self._most
            and size + len(left[0].lines) <= min(MOST_BYTES, self.limit_bytes)
        ):
            part.append(left.popleft())
            size += len(part[-1].lines)
        return part

    def _write_part(
        self, part: list[Operation], refused: dict[int, str]
    ) -> tuple[list[Operation], str]:
        """Send one request.

        Return the operations to send again, and the reason if the server is too busy.
        """
        if len(part) == 1 and len(part[0].lines) > self.limit_bytes:
            refused[part[0].position] = (
                f"{len(part[0].lines):,} bytes; the server takes {self.limit_bytes:,} at once"
            )
            return [], ""
        try:
            answer = self._send(b"".join(operation.lines for operation in part))
        except BulkRejected as refusal:
            return self._after_refusal(part, refusal, refused)
        if not answer["errors"]:
            self._most = min(MOST_DOCUMENTS, max(self._most, 2 * len(part)))
            return [], ""
        return self._after_errors(part, answer["items"], refused)

    def _after_refusal(
        self, part: list[Operation], refusal: BulkRejected, refused: dict[int, str]
    ) -> tuple[list[Operation], str]:
        """Handle a rejected request: halve it, until the document at fault is alone."""
        if refusal.status not in {_BAD_REQUEST, _TOO_LARGE, _BUSY}:
            raise SinkUnavailable(str(refusal))
        size = sum(len(operation.lines) for operation in part)
        never = refusal.status != _BUSY or _can_never_fit(refusal.error, size)
        if never and len(part) == 1:
            refused[part[0].position] = str(refusal)
            return [], ""
        self._most = max(1, len(part) // 2)
        return part, "" if never else str(refusal)

    def _after_errors(
        self, part: list[Operation], items: Sequence[Mapping[str, Any]], refused: dict[int, str]
    ) -> tuple[list[Operation], str]:
        busy: list[Operation] = []
        why_busy = ""
        for operation, item in zip(part, items, strict=True):
            (verdict,) = item.values()
            status = verdict["status"]
            error = verdict.get("error", {})
            reason = reason_of(error)
            # On conflict, a later copy is stored; what is not there is deleted.
            if status < 300 or status == _CONFLICT or (status == _MISSING and not error):
                continue
            if status == _BUSY and error.get("type") != "cluster_block_exception":
                busy.append(operation)
                why_busy = reason
            elif (
                status in {_BAD_REQUEST, _TOO_LARGE}
                and error.get("type") not in _FAULTS_OF_THE_CLUSTER
            ):
                refused[operation.position] = reason
            else:  # read-only index, missing shards, missing permission: never the job's fault
                raise SinkUnavailable(reason)
        if busy:
            self._most = max(1, len(part) // 2)
        return busy, why_busy


def reason_of(error: Mapping[str, Any] | str) -> str:
    """Return the server's error with its causes, cut to a readable length."""
    if isinstance(error, str):
        return error[:_LONGEST_REASON]
    reasons = [f"{error.get('type', 'error')}: {error.get('reason') or 'no reason given'}"]
    cause = error.get("caused_by")
    while isinstance(cause, Mapping):
        reasons.append(str(cause.get("reason")))
        cause = cause.get("caused_by")
    return ": ".join(reasons)[:_LONGEST_REASON]


def _can_never_fit(error: Mapping[str, Any], size: int) -> bool:
    """Return whether the request is too large for the memory even of an idle server."""
    limit = error.get("bytes_limit")  # of a circuit breaker
    if isinstance(limit, int):
        return size > limit
    pressure = _PRESSURE.search(str(error.get("reason")))
    return pressure is not None and int(pressure[1]) > int(pressure[2])
