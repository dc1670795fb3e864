"""`ETag` and `If-Match` of the API: a change applies only to the version the client has read."""

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

#: An entity tag. Weak tags do not promise equal bytes, so they never match.
_TAG = re.compile(r'(?P<weak>W/)?"(?P<tag>[^"]*)"')

SAFE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})


class PreconditionFailed(APIException):
    status_code = status.HTTP_412_PRECONDITION_FAILED
    default_detail = (
        "The resource has changed: its ETag does not match If-Match. Nothing was changed."
    )


def digest_of(data: Any) -> str:
    return hashlib.sha256(JSONRenderer().render(data)).hexdigest()[:32]


def strong_tags(header: str) -> list[str]:
    """Return the strong tags of an `If-Match` header, without quotes."""
    return [match["tag"] for match in _TAG.finditer(header) if not match["weak"]]


class Guarded(GenericViewSet[Any]):
    """A viewset whose objects have an ETag and can be changed under `If-Match`.

    For objects with a `version`, the ETag begins with the version, and only the version is
    compared, under the lock of the domain function: other fields, such as a rank, may have changed.
    For other objects the whole representation is compared, with the row locked until the response.
    """

    takes_if_match = True

    def dispatch(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        if not _is_condition(request):
            return super().dispatch(request, *args, **kwargs)
        with transaction.atomic():
            return super().dispatch(request, *args, **kwargs)

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Compare the tags after authentication."""
        super().initial(request, *args, **kwargs)
        if not _is_condition(request):
            return
        if not self.detail:
            raise PreconditionFailed("If-Match needs a single existing resource.")

        header = request.headers["If-Match"]
        resource = self.get_object()
        if hasattr(resource, "version"):
            _compare_version(request, header, resource.version)
            return
        type(resource)._base_manager.select_for_update().get(pk=resource.pk)
        if header.strip() == "*":
            return
        locked = self.get_object()
        if digest_of(self.get_serializer(locked).data) not in strong_tags(header):
            raise PreconditionFailed

    def finalize_response(self, request: Any, response: Any, *args: Any, **kwargs: Any) -> Any:
        """Add the ETag of a single object, also after a change, for the next change."""
        data = getattr(response, "data", None)
        if (
            status.is_success(response.status_code)
            and isinstance(data, Mapping)
            and {"id", "version"} & set(data)
        ):
            head = f"{data['version']}-" if "version" in data else ""
            response["ETag"] = f'"{head}{digest_of(data)}"'
        return super().finalize_response(request, response, *args, **kwargs)


def _compare_version(request: Request, header: str, version: int) -> None:
    """Reject another version; pass this one on as if it had been sent in the body."""
    if header.strip() == "*":
        return
    heads = [tag.partition("-")[0] for tag in strong_tags(header)]
    if version not in {
        int(head) for head in heads if head.isascii() and head.isdecimal() and len(head) < 10
    }:
        raise PreconditionFailed(
            f"The resource has changed to version {version}. Nothing was overwritten."
        )
    sent = request.data
    if isinstance(sent, Mapping):
        if sent.get("version") not in {None, version}:
            raise InvalidFields({"version": ["Does not match If-Match. Send only one of them."]})
        request._full_data = {**sent, "version": version}  # type: ignore[attr-defined]


def _is_condition(request: HttpRequest | Request) -> bool:
    return "If-Match" in request.headers and request.method not in SAFE
