"""`ETag` and `If-Match` of the API: nothing is changed that is not as the sender has seen it."""

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from django.db import transaction
from django.http import HttpRequest
from rest_framework import status
from rest_framework.exceptions import APIException
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import GenericViewSet

from apps.core.errors import InvalidFields

#: One of a list of tags; of weak ones it is not said that every byte is the same, so they match nothing.
_TAG = re.compile(r'(?P<weak>W/)?"(?P<tag>[^"]*)"')


SAFE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
_NOTHING = "If-Match is for changes of one thing that is there already."


class PreconditionFailed(APIException):
    status_code = status.HTTP_412_PRECONDITION_FAILED
    default_detail = "It is not as the ETag in If-Match says: it was changed meanwhile. Nothing was changed now."


def digest_of(data: Any) -> str:
    return hashlib.sha256(JSONRenderer().render(data)).hexdigest()[:32]


def strong_tags(header: str) -> list[str]:
    """Return the tags of an `If-Match`, without quotes."""
    return [found["tag"] for found in _TAG.finditer(header) if not found["weak"]]


class Guarded(GenericViewSet[Any]):
    """A viewset whose objects have an ETag of all that is told of them, and may be changed under `If-Match`.

    The row is locked while the change is made, so that nobody comes between.
    """

    takes_if_match = True

    def dispatch(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        """Hold the lock until the answer is there."""
        if not _is_condition(request):
            return super().dispatch(request, *args, **kwargs)
        with transaction.atomic():
            return super().dispatch(request, *args, **kwargs)

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Compare, once it is known who asks."""
        super().initial(request, *args, **kwargs)
        if not _is_condition(request):
            return
        if not self.detail:
            raise PreconditionFailed(_NOTHING)
        header = request.headers["If-Match"]
        found = self.get_object()
        type(found)._base_manager.select_for_update().get(pk=found.pk)
        if header.strip() != "*" and digest_of(self.get_serializer(self.get_object()).data) not in strong_tags(header):
            raise PreconditionFailed

    def finalize_response(self, request: Any, response: Any, *args: Any, **kwargs: Any) -> Any:
        """Tag one object, also after a change, so that the next change can be made under it."""
        if isinstance(response, Response) and _tells_of(response, "id"):
            response["ETag"] = f'"{digest_of(response.data)}"'
        return super().finalize_response(request, response, *args, **kwargs)


class Versioned(GenericViewSet[Any]):
    """A viewset whose objects have a `version`, which services compare: the ETag begins with it.

    What else is told of them, such as a rank, is in the ETag too, but does not count for `If-Match`.
    """

    takes_if_match = True

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Compare, and hand the version on as if it had been sent in the body: services compare it under a lock."""
        super().initial(request, *args, **kwargs)
        header = request.headers.get("If-Match", "*")
        if not _is_condition(request) or (self.detail and header.strip() == "*"):
            return
        if not self.detail:
            raise PreconditionFailed(_NOTHING)
        versions, sent = _versions_in(header), request.data
        version = self.get_object().version
        if version not in versions:
            raise PreconditionFailed(f"It was changed meanwhile, to version {version}. Nothing was overwritten.")
        if isinstance(sent, Mapping):
            if sent.get("version") not in {None, version}:
                raise InvalidFields({"version": ["It is another than that of If-Match: give one of them."]})
            request._full_data = {**sent, "version": version}  # type: ignore[attr-defined]

    def finalize_response(self, request: Any, response: Any, *args: Any, **kwargs: Any) -> Any:
        """Tag one object, also after a change, so that the next change can be made under it."""
        if isinstance(response, Response) and _tells_of(response, "version"):
            response["ETag"] = f'"{response.data["version"]}-{digest_of(response.data)}"'
        return super().finalize_response(request, response, *args, **kwargs)


def _versions_in(header: str) -> set[int]:
    heads = [tag.partition("-")[0] for tag in strong_tags(header)]
    return {int(head) for head in heads if head.isascii() and head.isdecimal() and len(head) < 10}


def _is_condition(request: HttpRequest | Request) -> bool:
    return "If-Match" in request.headers and request.method not in SAFE


def _tells_of(response: Response, field: str) -> bool:
    return status.is_success(response.status_code) and isinstance(response.data, Mapping) and field in response.data
