"""The sink of a host that does not reach the portal's database: jobs go to the portal over HTTP, with a token."""

import json
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Self

import urllib3
from django.conf import settings

from apps.archive.sinks.base import BadSink, SinkRefused, SinkUnavailable, SinkURL
from apps.archive.wire.batches import MEDIA_TYPE, MOST_BYTES, pack
from apps.archive.wire.entry import CapturedJob
from apps.core.domain.masking import Rule

BATCH_BYTES = 8 * 1024 * 1024
_SOON = urllib3.Timeout(connect=5, read=10)
_AT_LENGTH = urllib3.Timeout(connect=5, read=120)  # to store a batch may take its time
_LONGEST_REASON = 500
_DESCRIPTION_BYTES = 256


class PortalClient:
    """Speaks to the portal at `address`, on a connection that is kept."""

    def __init__(self, address: str, token: str) -> None:
        self.address = address
        self._headers = {"Authorization": f"Bearer {token}", "User-Agent": "opsportal-capture"}
        self._pool = urllib3.PoolManager(1, retries=urllib3.Retry(0, redirect=False))

    @classmethod
    def from_url(cls, url: SinkURL) -> Self:
        """`portal+https://HOST/`, or `portal+http:` where nobody can listen. The token comes by the settings."""
        url.only()
        if len(url.hosts) != 1:
            raise BadSink(f"the {url.scheme} sink wants the portal's address: {url.scheme}://HOST/")
        if not settings.ARCHIVE_PORTAL_TOKEN:
            raise BadSink("the portal sink wants a token: set ARCHIVE_PORTAL_TOKEN or ARCHIVE_PORTAL_TOKEN_FILE")
        address = f"{url.scheme.removeprefix('portal+')}://{url.hosts[0]}{url.path.rstrip('/')}"
        return cls(address, settings.ARCHIVE_PORTAL_TOKEN)

    def report(self, cluster: str, detail: Mapping[str, Any]) -> None:
        """Tell what a capture says of itself. Raises `SinkUnavailable`."""
        body = json.dumps({"cluster": cluster, "report": detail}).encode()
        status, answer = self.ask("POST", "/api/v1/capture/report/", body, "application/json")
        if status != HTTPStatus.NO_CONTENT:
            raise SinkUnavailable(f"{self.address} answers {status}: {_detail(answer)}")

    def masking_rules(self) -> list[Rule]:
        """Return the rules that are in force. Raises `SinkUnavailable`."""
        status, answer = self.ask("GET", "/api/v1/capture/report/")
        try:
            return [Rule(*pair) for pair in answer["masking_rules"]]
        except (KeyError, TypeError, ValueError) as error:
            raise SinkUnavailable(f"{self.address} answers {status}: {_detail(answer)}") from error

    def ask(self, method: str, path: str, body: bytes = b"", media_type: str = "") -> tuple[int, Any]:
        """Return status and JSON of the answer, None where it is none. Raises `SinkUnavailable`."""
        headers = self._headers | ({"Content-Type": media_type} if media_type else {})
        timeout = _AT_LENGTH if media_type == MEDIA_TYPE else _SOON
        try:
            answer = self._pool.request(method, self.address + path, body=body, headers=headers, timeout=timeout)
        except urllib3.exceptions.HTTPError as error:
            cause = getattr(error, "reason", None) or error
            raise SinkUnavailable(f"{self.address} cannot be reached: {cause}") from error
        try:
            return answer.status, json.loads(answer.data)
        except ValueError:
            return answer.status, None

    def close(self) -> None:
        self._pool.clear()


class PortalSink:
    """Sends batches; the portal keeps each in one transaction, and answers when it is durable."""

    uses_models = False

    def __init__(self, client: PortalClient) -> None:
        self.name = f"portal+{client.address}/"
        self._client = client
        self._batch_bytes = BATCH_BYTES

    @classmethod
    def from_url(cls, url: SinkURL) -> Self:
        """See `PortalClient.from_url`."""
        return cls(PortalClient.from_url(url))

    def write(self, jobs: Sequence[CapturedJob]) -> Mapping[int, str]:
        """Send them in batches of a bounded size: smaller ones once the portal, or a proxy, finds one too large."""
        refused: dict[int, str] = {}
        start = 0
        while start < len(jobs):
            batch = self._next(jobs[start:])
            if batch[0].size_bytes > MOST_BYTES:
                refused[start] = f"it has {batch[0].size_bytes:,} bytes, the portal takes {MOST_BYTES:,} at once"
            elif (found := self._send(batch)) is None:
                self._batch_bytes = sum(map(_weight, batch)) // 2
                continue
            else:
                refused |= {start + index: reason for index, reason in found.items()}
            start += len(batch)
        return refused

    def close(self) -> None:
        self._client.close()

    def _next(self, jobs: Sequence[CapturedJob]) -> Sequence[CapturedJob]:
        """Return the first of the jobs that go together: one at least."""
        size = 0
        for count, job in enumerate(jobs):
            size += _weight(job)
            if count and size > self._batch_bytes:
                return jobs[:count]
        return jobs

    def _send(self, jobs: Sequence[CapturedJob]) -> Mapping[int, str] | None:
        """Return the reasons for the refused; None where there are too many at once."""
        status, answer = self._client.ask("POST", "/api/v1/capture/jobs/", pack(jobs), MEDIA_TYPE)
        why = f"{self._client.address} answers {status}: {_detail(answer)}"
        match status:
            case HTTPStatus.OK:
                return self._refused(answer, len(jobs))
            case HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
                return {0: why} if len(jobs) == 1 else None
            case HTTPStatus.UNPROCESSABLE_ENTITY:
                raise SinkRefused(why)
            case HTTPStatus.UNAUTHORIZED | HTTPStatus.FORBIDDEN:
                raise SinkUnavailable(f"{why} (see ARCHIVE_PORTAL_TOKEN)")
        raise SinkUnavailable(why)

    def _refused(self, answer: Any, count: int) -> Mapping[int, str]:
        try:
            refused = {int(index): str(reason) for index, reason in answer["refused"].items()}
            good = answer["received"] == count and all(0 <= index < count for index in refused)
        except (KeyError, TypeError, ValueError, AttributeError):
            good = False
        if not good:
            raise SinkUnavailable(f"{self._client.address} answers as no portal does")
        return refused


def _weight(job: CapturedJob) -> int:
    """Return what a job adds to a batch: also one without a byte has to be described."""
    return job.size_bytes + _DESCRIPTION_BYTES


def _detail(answer: Any) -> str:
    found = answer.get("detail") if isinstance(answer, dict) else None
    return str(found or "no word why")[:_LONGEST_REASON]
