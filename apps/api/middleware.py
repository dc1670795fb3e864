"""Honours `Idempotency-Key` for every change over the API, whichever view makes it."""

from collections.abc import Callable
from typing import Any

from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.utils import timezone
from rest_framework.exceptions import APIException
from rest_framework.request import Request
from rest_framework.views import APIView

from apps.accounts.models import User
from apps.api.idempotency import HEADER, answer_once, key_of

SAFE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})


class IdempotencyMiddleware:
    """Let a change that is sent again with its key be made once. Last in the list, as it calls the view itself."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_view(
        self, request: HttpRequest, view: Callable[..., HttpResponseBase], args: Any, kwargs: Any
    ) -> HttpResponseBase | None:
        """Call the view where a key came with a change by a known person; else leave all to the view."""
        header, cls = request.headers.get(HEADER), getattr(view, "cls", None)
        if header is None or request.method in SAFE or cls is None or not issubclass(cls, APIView):
            return None
        user = _who(request, cls)
        if user is None:
            return None
        key = key_of(header)
        if key is None:
            return JsonResponse({"detail": f"{HEADER}: 1 to 255 printable ASCII characters, in quotes."}, status=400)
        try:
            request.body  # noqa: B018 - what is too large, or breaks off, the view refuses as always
        except (RequestDataTooBig, OSError):
            return None
        return answer_once(
            request=request, user=user, key=key, at=timezone.now(), answer=lambda: view(request, *args, **kwargs)
        )


def _who(request: HttpRequest, cls: type[APIView]) -> User | None:
    """Return who asks, as the view will find; None for machines, strangers, and whom the view will refuse."""
    try:
        user = Request(request, authenticators=cls().get_authenticators()).user
    except APIException:
        return None
    return user if isinstance(user, User) else None
