"""What the API reads, and how it answers errors of the domain."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest
from rest_framework import parsers, status
from rest_framework.exceptions import APIException, ParseError, ValidationError
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer
from rest_framework.views import exception_handler

from apps.core.errors import DomainError, InvalidFields, InvalidTransition, NotAllowed, StaleState

S = TypeVar("S", bound=BaseSerializer[Any])

#: What PostgreSQL cannot store as text: NUL, and halves of surrogate pairs.
_NOT_TEXT = re.compile("[\0\ud800-\udfff]")
_NO_TEXT = "Text cannot hold the character NUL, nor half of a surrogate pair."
_STATUS = {
    NotAllowed: status.HTTP_403_FORBIDDEN,
    InvalidTransition: status.HTTP_409_CONFLICT,
    StaleState: status.HTTP_409_CONFLICT,
}


class JSONParser(parsers.JSONParser):
    """JSON of a size that a form may have too, and of text that PostgreSQL can store."""

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Mapping[str, Any] | None = None) -> Any:
        length = int(stream.META.get("CONTENT_LENGTH") or 0) if isinstance(stream, HttpRequest) else 0
        if length > settings.DATA_UPLOAD_MAX_MEMORY_SIZE:
            raise RequestDataTooBig
        try:
            data = super().parse(stream, media_type, parser_context)
        except RecursionError:
            raise ParseError("JSON parse error - nested too deep") from None
        path = _first_bad(data)
        if path is not None:
            raise InvalidFields({path or "non_field_errors": [_NO_TEXT]})
        return data


class TooLarge(APIException):
    status_code = status.HTTP_413_REQUEST_ENTITY_TOO_LARGE
    default_detail = f"At most {settings.DATA_UPLOAD_MAX_MEMORY_SIZE:,} bytes."


@dataclass(frozen=True)
class _Place:
    """Where a value is; its path is put together only when it is needed, as data from outside may be deep and wide."""

    name: str
    inside: "_Place | None"

    def path(self) -> str:
        names, place = [], self
        while place.inside is not None:
            names.append(place.name)
            place = place.inside
        return ".".join(reversed(names))


def _first_bad(data: Any) -> str | None:
    """Return the path of a text that cannot be stored, such as `stages.0.name`; None if all can."""
    waiting = [(_Place("", None), data)]
    while waiting:
        place, part = waiting.pop()
        if isinstance(part, str) and _NOT_TEXT.search(part):
            return place.path()
        if isinstance(part, list):
            waiting += [(_Place(str(number), place), item) for number, item in enumerate(part)]
        elif isinstance(part, dict):
            waiting += [(_Place(name, place), item) for name, item in part.items()]
            waiting += [(place, name) for name in part]  # looked at first
    return None


def valid(sent: S) -> S:
    """Return what was sent, checked. Raises `ValidationError`, which `handle_error` tells by field path."""
    sent.is_valid(raise_exception=True)
    return sent


def checked_data(sent: BaseSerializer[Any]) -> dict[str, Any]:
    """Return the data of what was sent, checked. Raises as `valid` does."""
    return dict(valid(sent).validated_data)


def problems(errors: Any, path: str = "") -> dict[str, list[str]]:
    """Flatten nested errors to one message list by field path, such as `stages.0.memory_bytes`."""
    if isinstance(errors, Mapping):
        parts = errors.items()
    elif any(isinstance(error, Mapping | list) for error in errors):
        parts = dict(enumerate(errors)).items()
    else:
        return {path: [str(error) for error in errors]} if errors else {}
    found: dict[str, list[str]] = {}
    for name, inner in parts:
        here = path if name == "non_field_errors" and path else f"{path}.{name}" if path else str(name)
        for place, messages in problems(inner, here).items():
            found.setdefault(place, []).extend(messages)
    return found


def handle_error(error: Exception, context: dict[str, Any]) -> Response | None:
    """Answer a `DomainError` with 403, 409 or 400 and its message, too much with 413; all else as DRF does."""
    if isinstance(error, InvalidFields):
        error = ValidationError(error.problems)
    elif isinstance(error, DomainError):
        answer = APIException(str(error))
        answer.status_code = _STATUS.get(type(error), status.HTTP_400_BAD_REQUEST)
        if isinstance(error, StaleState) and "If-Match" in context["request"].headers:
            answer.status_code = status.HTTP_412_PRECONDITION_FAILED
        error = answer
    elif isinstance(error, RequestDataTooBig):
        error = TooLarge()
    response = exception_handler(error, context)
    if response is not None and isinstance(error, ValidationError):
        found = problems(response.data)
        # Told of nothing in particular, it is about the call as a whole.
        response.data = found if "" not in found else {"detail": " ".join(found[""])}
    return response
