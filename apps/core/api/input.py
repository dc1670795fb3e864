"""What the API reads, and how it answers errors of the domain."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest
from rest_framework import parsers
from rest_framework.exceptions import ParseError
from rest_framework.serializers import BaseSerializer

from apps.core.errors import InvalidFields

S = TypeVar("S", bound=BaseSerializer[Any])

#: What PostgreSQL cannot store as text: NUL, and halves of surrogate pairs.
_NOT_TEXT = re.compile("[\0\ud800-\udfff]")
_NO_TEXT = "Text cannot hold the character NUL, nor half of a surrogate pair."


def check_length(stream: Any) -> None:
    """Refuse a body that is larger than a form may be. Raises `RequestDataTooBig`."""
    length = int(stream.META.get("CONTENT_LENGTH") or 0) if isinstance(stream, HttpRequest) else 0
    if length > settings.DATA_UPLOAD_MAX_MEMORY_SIZE:
        raise RequestDataTooBig


class JSONParser(parsers.JSONParser):
    """JSON of a size that a form may have too, and of text that PostgreSQL can store."""

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Mapping[str, Any] | None = None) -> Any:
        check_length(stream)
        try:
            data = super().parse(stream, media_type, parser_context)
        except RecursionError:
            raise ParseError("JSON parse error - nested too deep") from None
        path = _first_bad(data)
        if path is not None:
            raise InvalidFields({path or "non_field_errors": [_NO_TEXT]})
        return data


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
