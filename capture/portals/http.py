"""The portal over HTTP, for hosts that cannot reach its database;
with a token from `manage.py capture_host`.
"""

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

import urllib3

from apps.core.domain.masking import Rule
from capture.journal.journal import JournaledBatch
from capture.portals.base import BatchRefused, BatchTooLarge, PortalAway, Sender
from capture.wire.batches import MEDIA_TYPE
from capture.wire.intake import JournalOutdated

_SOON = urllib3.Timeout(connect=5, read=10)
_AT_LENGTH = urllib3.Timeout(connect=5, read=120)  # a batch may be large, and the way slow
_LONGEST_REASON = 500
_REPORT = "/api/v1/capture/report/"


class HttpPortal:
    """Speaks to the portal at `address` on a connection that is kept."""

    def __init__(self, address: str, token: str, sender: Sender) -> None:
        self._address = address.rstrip("/")
        self._sender = sender
        self._headers = {"Authorization": f"Bearer {token}", "User-Agent": "opsportal-capture"}
        self._pool = urllib3.PoolManager(1, retries=urllib3.Retry(0, redirect=False))

    def take(self, batch: JournaledBatch) -> None:
        place = {"cluster": self._sender.cluster, "journal": batch.journal, "sequence": batch.last}
        status, answer = self._ask(
            "POST", f"/api/v1/capture/batches/?{urlencode(place)}", batch.content, MEDIA_TYPE
        )
        match status:
            case HTTPStatus.OK if isinstance(answer, dict) and "received" in answer:
                return
            case HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
                raise BatchTooLarge(self._why(status, answer))
            case HTTPStatus.CONFLICT:
                raise JournalOutdated(self._why(status, answer))
            case HTTPStatus.UNPROCESSABLE_ENTITY:
                raise BatchRefused(self._why(status, answer))
        raise PortalAway(self._why(status, answer))

    def report(self, detail: Mapping[str, Any]) -> None:
        body = json.dumps({"cluster": self._sender.cluster, "report": detail}).encode()
        status, answer = self._ask("POST", _REPORT, body, "application/json")
        if status != HTTPStatus.NO_CONTENT:
            raise PortalAway(self._why(status, answer))

    def masking_rules(self) -> list[Rule]:
        status, answer = self._ask("GET", _REPORT)
        try:
            return [Rule(*pair) for pair in answer["masking_rules"]]
        except (KeyError, TypeError, ValueError) as error:
            raise PortalAway(self._why(status, answer)) from error

    def undelivered(self, journal: str) -> int:
        return 0  # a portal delivers to its own sinks what comes this way

    def close(self) -> None:
        self._pool.clear()

    def _ask(
        self, method: str, path: str, body: bytes = b"", media_type: str = ""
    ) -> tuple[int, Any]:
        """Return status and JSON of the answer, None where it is none."""
        headers = self._headers | ({"Content-Type": media_type} if media_type else {})
        timeout = _AT_LENGTH if media_type == MEDIA_TYPE else _SOON
        try:
            answer = self._pool.request(
                method, self._address + path, body=body, headers=headers, timeout=timeout
            )
        except urllib3.exceptions.HTTPError as error:
            cause = getattr(error, "reason", None) or error
            raise PortalAway(f"{self._address} cannot be reached: {cause}") from error
        try:
            return answer.status, json.loads(answer.data)
        except ValueError:
            return answer.status, None

    def _why(self, status: int, answer: Any) -> str:
        detail = answer.get("detail") if isinstance(answer, dict) else None
        reason = str(detail or "no word why")[:_LONGEST_REASON]

        hint = ""
        if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
            hint = " (see ARCHIVE_PORTAL_TOKEN)"
        return f"{self._address} answers {status}: {reason}{hint}"
