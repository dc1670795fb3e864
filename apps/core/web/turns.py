"""Limit each user to one costly request at a time, so that no user takes all processors."""

import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import wraps
from typing import Any, TypeVar, cast

from django.http import HttpRequest, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render

from apps.core.domain.locks import exclusive_lock
from apps.core.errors import LimitReached

V = TypeVar("V", bound=Callable[..., HttpResponseBase])

#: How long a user's second costly request waits for the first. A third is rejected at once, so that
#: few threads wait.
WAIT_SECONDS = 3.0
_PAUSE_SECONDS = 0.1
_TURN_LOCK = 4_716_042
_WAITING_LOCK = 4_716_043
_DOWNLOAD_LOCK = 4_716_044
_BUSY = "Another of your pages or downloads is still being prepared or sent. Try again in a moment."


def one_at_a_time(view: V) -> V:
    """Limit a user to one request at a time over all views with this decorator.

    API views may decorate methods. A second request waits for `WAIT_SECONDS`, then gets 429 with
    Retry-After. While a download is sent, other requests are allowed, but no second download. The
    form of a page is never rejected, because its input would be lost.
    """

    @wraps(view)
    def limited(*arguments: Any, **named: Any) -> HttpResponseBase:
        is_page = isinstance(arguments[0], HttpRequest)
        request = arguments[0 if is_page else 1]
        if is_page and request.method == "POST":
            return view(*arguments, **named)
        with ExitStack() as turn:
            if not _has_turn(request.user.pk, turn):
                return _refuse(request, is_page=is_page)
            response = view(*arguments, **named)
        if isinstance(response, StreamingHttpResponse):
            download = ExitStack()
            if not download.enter_context(exclusive_lock(_DOWNLOAD_LOCK, request.user.pk)):
                response.close()
                return _refuse(request, is_page=is_page)
            response.streaming_content = _Content(response.streaming_content, download)
        return response

    limited.is_one_at_a_time = True  # type: ignore[attr-defined]
    return cast(V, limited)


def _refuse(request: HttpRequest, *, is_page: bool) -> HttpResponseBase:
    """Return a page with status 429. Raises `LimitReached` for the API."""
    if not is_page:
        raise LimitReached(_BUSY, wait_seconds=WAIT_SECONDS)
    refusal = render(request, "429.html", {"message": _BUSY}, status=429)
    refusal["Retry-After"] = str(math.ceil(WAIT_SECONDS))
    return refusal


def _has_turn(user_id: int, turn: ExitStack) -> bool:
    """Take the turn of a user, waiting if no other request waits; return whether that succeeded."""
    if turn.enter_context(exclusive_lock(_TURN_LOCK, user_id)):
        return True
    with exclusive_lock(_WAITING_LOCK, user_id) as may_wait:
        end = time.monotonic() + WAIT_SECONDS
        while may_wait and time.monotonic() < end:
            time.sleep(_PAUSE_SECONDS)
            if turn.enter_context(exclusive_lock(_TURN_LOCK, user_id)):
                return True
    return False


class _Content:
    """The content of a download. The response closes it, which allows the next download."""

    def __init__(self, content: Any, download: ExitStack) -> None:
        self._content: Iterable[bytes] = content
        self._download = download

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._content)

    def close(self) -> None:
        self._download.close()
