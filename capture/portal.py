"""The portal as capture sees it: an HTTPS API, used with the token of a capture host."""

import json
import uuid
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Protocol
from urllib.parse import urlencode

import urllib3

from apps.core.domain.secrets.masking import MaskPattern
from capture.journal.journal import JournaledBatch
from capture.wire.batches import MEDIA_TYPE

_SHORT_TIMEOUT = urllib3.Timeout(connect=5, read=10)
_BATCH_TIMEOUT = urllib3.Timeout(connect=5, read=120)  # a batch may be large and the link slow
_LONGEST_REASON = 500
_REPORT = "/api/v1/capture/report/"


class PortalAway(Exception):
    """The portal cannot be reached, or takes nothing now.

    Nothing is wrong with the batch: try again later. `request_id` is in the portal's log, too.
    """

    def __init__(self, reason: str, request_id: str = "") -> None:
        super().__init__(reason)
        self.request_id = request_id


class BatchTooLarge(Exception):
    """The portal, or a proxy, takes no batch of this size."""


class BatchRefused(Exception):
    """The portal does not take this batch; the message says why."""


class JournalOutdated(Exception):
    """The portal has later batches of this journal: it was restored from a copy."""


class Portal(Protocol):
    """Receives batches. All calls come from one thread, and all but `close` raise `PortalAway`."""

    def take(self, batch: JournaledBatch) -> None:
        """Send a batch, and return once it is stored durably; sending it again is harmless.

        Raises `BatchTooLarge`, `BatchRefused` and `JournalOutdated`.
        """

    def report(self, detail: Mapping[str, Any]) -> None:
        """Send the status report of capture."""

    def masking_rules(self) -> list[MaskPattern]:
        """Return the rules in force."""

    def close(self) -> None:
        """Close connections. They are opened again when needed."""


class HttpPortal:
    """The portal at `address`, on one connection that is kept open."""

    def __init__(self, address: str, token: str, cluster: str) -> None:
        self._address = address.rstrip("/")
        self._cluster = cluster
        self._headers = {"Authorization": f"Bearer {token}", "User-Agent": "opsportal-capture"}
        self._request_id = ""
        self._pool = urllib3.PoolManager(1, retries=urllib3.Retry(0, redirect=False))

    def take(self, batch: JournaledBatch) -> None:
        place = {"cluster": self._cluster, "journal": batch.journal, "sequence": batch.last}
        status, answer = self._request(
            "POST", f"/api/v1/capture/batches/?{urlencode(place)}", batch.content, MEDIA_TYPE
        )
        match status:
            case HTTPStatus.OK if isinstance(answer, dict) and "received" in answer:
                return
            case HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
                raise BatchTooLarge(self._reason(status, answer))
            case HTTPStatus.CONFLICT:
                raise JournalOutdated(self._reason(status, answer))
            case HTTPStatus.UNPROCESSABLE_ENTITY:
                raise BatchRefused(self._reason(status, answer))
        raise self._away(status, answer)

    def report(self, detail: Mapping[str, Any]) -> None:
        body = json.dumps({"cluster": self._cluster, "report": detail}).encode()
        status, answer = self._request("POST", _REPORT, body, "application/json")
        if status != HTTPStatus.NO_CONTENT:
            raise self._away(status, answer)

    def masking_rules(self) -> list[MaskPattern]:
        status, answer = self._request("GET", _REPORT)
        try:
            return [MaskPattern(*pair) for pair in answer["masking_rules"]]
        except (KeyError, TypeError, ValueError) as error:
            raise self._away(status, answer) from error

    def close(self) -> None:
        self._pool.clear()

    def _request(
        self, method: str, path: str, body: bytes = b"", media_type: str = ""
    ) -> tuple[int, Any]:
        """Return the status and the JSON of the answer, None where it is not JSON."""
        self._request_id = uuid.uuid4().hex
        headers = self._headers | {"X-Request-ID": self._request_id}
        if media_type:
            headers["Content-Type"] = media_type
        timeout = _BATCH_TIMEOUT if media_type == MEDIA_TYPE else _SHORT_TIMEOUT

        try:
            response = self._pool.request(
                method, self._address + path, body=body, headers=headers, timeout=timeout
            )
        except urllib3.exceptions.HTTPError as error:
            cause = getattr(error, "reason", None) or error
            reason = f"{self._address} cannot be reached: {cause}"
            raise PortalAway(reason, self._request_id) from error

        try:
            return response.status, json.loads(response.data)
        except ValueError:
            return response.status, None

    def _away(self, status: int, answer: Any) -> PortalAway:
        return PortalAway(self._reason(status, answer), self._request_id)

    def _reason(self, status: int, answer: Any) -> str:
        detail = answer.get("detail") if isinstance(answer, dict) else None
        reason = str(detail or "no reason given")[:_LONGEST_REASON]

        hint = ""
        if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
            hint = " (see ARCHIVE_PORTAL_TOKEN)"
        return f"{self._address} answers {status}: {reason}{hint}"
