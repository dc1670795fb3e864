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
from rest_framework.viewsets import GenericViewSet

from apps.core.errors import InvalidFields

#: One of a list of tags; of weak ones it is not said that every byte is the same, so they match nothing.
_TAG = re.compile(r'(?P<weak>W/)?"(?P<tag>[^"]*)"')

SAFE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})


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

    The ETag of what has a `version` begins with it, and the version alone decides: a rank, for example, may change
    meanwhile. Services compare it under a lock. Of all else the whole is compared, and its row is locked until the
    answer is there, so that nobody comes between.
    """

    takes_if_match = True

    def dispatch(self, request: Any, *args: Any, **kwargs: Any) -> Any:
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
            raise PreconditionFailed("If-Match is for changes of one thing that is there already.")
        found, header = self.get_object(), request.headers["If-Match"]
        if hasattr(found, "version"):
            _compare_version(request, header, found.version)
            return
        type(found)._base_manager.select_for_update().get(pk=found.pk)
        if header.strip() != "*" and digest_of(self.get_serializer(self.get_object()).data) not in strong_tags(header):
            raise PreconditionFailed

    def finalize_response(self, request: Any, response: Any, *args: Any, **kwargs: Any) -> Any:
        """Tag one object, also after a change, so that the next change can be made under it."""
        told = getattr(response, "data", None)
        if status.is_success(response.status_code) and isinstance(told, Mapping) and {"id", "version"} & set(told):
            head = f"{told['version']}-" if "version" in told else ""
            response["ETag"] = f'"{head}{digest_of(told)}"'
        return super().finalize_response(request, response, *args, **kwargs)


def _compare_version(request: Request, header: str, version: int) -> None:
    """Refuse another version, and hand this one on as if it had been sent in the body."""
    if header.strip() == "*":
        return
    heads = [tag.partition("-")[0] for tag in strong_tags(header)]
    if version not in {int(head) for head in heads if head.isascii() and head.isdecimal() and len(head) < 10}:
        raise PreconditionFailed(f"It was changed meanwhile, to version {version}. Nothing was overwritten.")
    sent = request.data
    if isinstance(sent, Mapping):
        if sent.get("version") not in {None, version}:
            raise InvalidFields({"version": ["Does not match If-Match. Send only one of them."]})
        request._full_data = {**sent, "version": version}  # type: ignore[attr-defined]


def _is_condition(request: HttpRequest | Request) -> bool:
    return "If-Match" in request.headers and request.method not in SAFE
