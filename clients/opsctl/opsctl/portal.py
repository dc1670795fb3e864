"""Calls of the portal's API, and its refusals as errors with an exit code each."""

import time
import uuid
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any

import click
import httpx

from opsctl import __version__

API = "/api/v1/"
#: Exit codes beside 0 and click's 2 for wrong usage.
REFUSED, NOT_FOUND, NOT_ALLOWED, UNREACHABLE, ADVISED_AGAINST, NOT_YET = 1, 3, 4, 5, 6, 7
_EXIT_CODES = {401: NOT_ALLOWED, 403: NOT_ALLOWED, 404: NOT_FOUND}
#: Seconds between tries while the portal is unavailable. A change carries a key, so that it is made once.
_PAUSES = (0.5, 2.0)
_AWAY = {HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT}
_PAGE = 100


class Failed(click.ClickException):
    """A call that the portal refused, or that did not reach it."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc]  # click reads it from the instance


class Portal:
    """The API of one portal, called with a token."""

    def __init__(
        self, url: str, token: str, *, transport: httpx.BaseTransport | None = None
    ) -> None:
        headers = {"User-Agent": f"opsctl/{__version__}", "Accept": "application/json"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        try:
            self._client = httpx.Client(
                base_url=url.rstrip("/") + API, headers=headers, timeout=60, transport=transport
            )
        except httpx.InvalidURL as error:
            raise Failed(f"{url}: {error}", UNREACHABLE) from error

    def get(self, path: str, **query: Any) -> Any:
        return self._call("GET", path, params=_given(query)).json()

    def text(self, path: str) -> bytes:
        return self._call("GET", path, headers={"Accept": "*/*"}).content

    def rows(self, path: str, *, limit: int, **query: Any) -> Iterator[dict[str, Any]]:
        """Yield the first `limit` rows of a list, page by page."""
        wanted: str | None = path
        params: Mapping[str, Any] | None = _given({**query, "page_size": min(limit, _PAGE)})
        while wanted and limit > 0:
            page = self._call("GET", wanted, params=params).json()
            yield from page["results"][:limit]
            limit -= len(page["results"])
            wanted, params = page["next"], None

    def change(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Make a change once, however often it is tried."""
        return self._change(path, json=_given(body or {}))

    def upload(self, path: str, content: bytes, content_type: str) -> Any:
        return self._change(path, content=content, headers={"Content-Type": content_type})

    def _change(self, path: str, **call: Any) -> Any:
        key = {"Idempotency-Key": f'"{uuid.uuid4()}"'}
        response = self._call(
            "POST", path, **{**call, "headers": {**call.get("headers", {}), **key}}
        )
        return response.json() if response.content else None

    def _call(self, method: str, path: str, **call: Any) -> httpx.Response:
        for pause in (*_PAUSES, None):
            try:
                response = self._client.request(method, path, **call)
            except (httpx.TransportError, httpx.InvalidURL) as error:
                if pause is None:
                    raise Failed(
                        f"{self._client.base_url.host} cannot be reached: {error}", UNREACHABLE
                    ) from error
            else:
                if response.status_code not in _AWAY or pause is None:
                    return _checked(response)
            time.sleep(pause)
        raise AssertionError("the last try returns or raises")


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value not in (None, "", ())}


def _checked(response: httpx.Response) -> httpx.Response:
    """Return a successful response. Raises `Failed` with what the portal says."""
    if response.is_success:
        return response
    if response.is_redirect:
        raise Failed(
            (
                f"{response.url.host} redirects to {response.headers.get('Location')}: correct "
                "the URL."
            ),
            UNREACHABLE,
        )
    code = (
        UNREACHABLE if response.is_server_error else _EXIT_CODES.get(response.status_code, REFUSED)
    )
    try:
        said = response.json()
    except ValueError:
        raise Failed(
            f"{response.url.host} answers {response.status_code} {response.reason_phrase}.", code
        ) from None
    problems = said if isinstance(said, dict) else {"detail": said}
    lines = [
        text if name in {"detail", "non_field_errors"} else f"{name}: {text}"
        for name, texts in problems.items()
        for text in (texts if isinstance(texts, list) else [texts])
    ]
    raise Failed("\n       ".join(map(str, lines)) or response.reason_phrase, code)
