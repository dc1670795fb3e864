"""Costly answers: a user has one at a time, so that one user never takes all processors."""

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

#: So long a second costly answer of a user waits for the first; a third is refused at once, so that few threads wait.
WAIT_SECONDS = 3.0
_PAUSE_SECONDS = 0.1
_TURN_LOCK, _WAITING_LOCK = 4_716_042, 4_716_043
_BUSY = "Another costly page or download of yours is still running. Try again in a moment."


def one_at_a_time(view: V) -> V:
    """Give a user one answer at a time of all views and methods of API views with this decorator.

    A second one waits for `WAIT_SECONDS`, then gets 429 with Retry-After. A download counts until its end.
    """

    @wraps(view)
    def answer(*arguments: Any, **named: Any) -> HttpResponseBase:
        is_page = isinstance(arguments[0], HttpRequest)
        request = arguments[0 if is_page else 1]
        with ExitStack() as turn:
            if not _has_turn(request.user.pk, turn):
                if not is_page:
                    raise LimitReached(_BUSY, wait_seconds=WAIT_SECONDS)
                refusal = render(request, "429.html", {"message": _BUSY}, status=429)
                refusal["Retry-After"] = str(math.ceil(WAIT_SECONDS))
                return refusal
            response = view(*arguments, **named)
            if isinstance(response, StreamingHttpResponse):
                response.streaming_content = _Content(response.streaming_content, turn.pop_all())
            return response

    answer.is_one_at_a_time = True  # type: ignore[attr-defined]
    return cast(V, answer)


def _has_turn(user_id: int, turn: ExitStack) -> bool:
    """Take the turn of a user, waiting if no other answer waits; return whether it was free in time."""
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
    """The content of a download; its response closes it, which ends the turn."""

    def __init__(self, content: Any, turn: ExitStack) -> None:
        self._content: Iterable[bytes] = content
        self._turn = turn

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._content)

    def close(self) -> None:
        self._turn.close()
