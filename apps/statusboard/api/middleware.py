"""Take payloads of monitoring systems before the middleware and the search for a URL that pages
need.
"""

import re
from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

from apps.core.web.middleware import refusal_of_body
from apps.statusboard.api.views import LIMIT_BYTES, receive_feed

_FEED = re.compile(r"/api/v1/feeds/([-\w]+)/", re.ASCII)


class FeedMiddleware:
    """Hand posts of feeds to their view, at a fifth of the cost: they have tokens, and no session,
    user or form.

    It comes after the middleware that refuses malformed requests and finds the sender's address.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        match = None
        if request.method == "POST":
            match = _FEED.fullmatch(request.path_info)
        if match is None:
            return self.get_response(request)
        return refusal_of_body(request, LIMIT_BYTES) or receive_feed(request, slug=match[1])
