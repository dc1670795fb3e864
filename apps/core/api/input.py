"""Parse and validate request bodies of the API."""

import re
from collections.abc import Mapping
from typing import Any, TypeVar

from rest_framework import parsers
from rest_framework.exceptions import ParseError
from rest_framework.serializers import BaseSerializer

from apps.core.errors import InvalidFields

S = TypeVar("S", bound=BaseSerializer[Any])

#: Characters that PostgreSQL cannot store: NUL and lone surrogates.
_NOT_TEXT = re.compile("[\0\ud800-\udfff]")
_NO_TEXT = "Text cannot hold the character NUL, nor half of a surrogate pair."


class JSONParser(parsers.JSONParser):
    """Parses JSON whose text PostgreSQL can store."""

    def parse(
        self,
        stream: Any,
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        try:
            data = super().parse(stream, media_type, parser_context)
            path = _path_of_bad_text(data)
        except RecursionError:
            raise ParseError("JSON parse error - nested too deep") from None
        if path is not None:
            raise InvalidFields({".".join(path) or "non_field_errors": [_NO_TEXT]})
        return data


def _path_of_bad_text(part: Any) -> tuple[str, ...] | None:
    """Return the path of a text that cannot be stored; None if there is none.

    Takes linear time, and recurses no deeper than the JSON parser did.
    """
    if isinstance(part, str):
        return () if _NOT_TEXT.search(part) else None
    if isinstance(part, dict):
        if any(_NOT_TEXT.search(name) for name in part):
            return ()
    elif not isinstance(part, list):
        return None
    for name, inner in part.items() if isinstance(part, dict) else enumerate(part):
        if isinstance(inner, str | list | dict) and (path := _path_of_bad_text(inner)) is not None:
            return str(name), *path
    return None


def valid(sent: S) -> S:
    """Validate a serializer and return it.

    Raises `ValidationError`, which `handle_error` reports by field path.
    """
    sent.is_valid(raise_exception=True)
    return sent


def checked_data(sent: BaseSerializer[Any]) -> dict[str, Any]:
    """Validate a serializer and return its data. Raises like `valid`."""
    return dict(valid(sent).validated_data)
