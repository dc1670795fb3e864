"""Error responses of the API."""

import math
from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from rest_framework import status
from rest_framework.exceptions import APIException, ValidationError
from rest_framework.response import Response
from rest_framework.views import exception_handler

from apps.core.errors import (
    DomainError,
    InvalidFields,
    InvalidTransition,
    LimitReached,
    NotAllowed,
    StaleState,
)

_STATUS = {
    NotAllowed: status.HTTP_403_FORBIDDEN,
    InvalidTransition: status.HTTP_409_CONFLICT,
    StaleState: status.HTTP_409_CONFLICT,
}


class TooLarge(APIException):
    status_code = status.HTTP_413_REQUEST_ENTITY_TOO_LARGE
    default_detail = f"At most {settings.DATA_UPLOAD_MAX_MEMORY_SIZE:,} bytes."


def problems(errors: Any, path: str = "") -> dict[str, list[str]]:
    """Flatten nested errors to lists of messages by field path, such as `stages.0.memory_bytes`."""
    if isinstance(errors, Mapping):
        parts = errors.items()
    elif any(isinstance(error, Mapping | list) for error in errors):
        parts = dict(enumerate(errors)).items()
    else:
        return {path: [str(error) for error in errors]} if errors else {}
    by_path: dict[str, list[str]] = {}
    for name, inner in parts:
        if not path:
            here = str(name)
        elif name == "non_field_errors":
            here = path
        else:
            here = f"{path}.{name}"
        for place, messages in problems(inner, here).items():
            by_path.setdefault(place, []).extend(messages)
    return by_path


def _limit_answer(error: LimitReached) -> APIException:
    """Return 429 with a Retry-After header for a temporary limit, else 413."""
    if error.wait_seconds is None:
        return TooLarge(str(error))
    answer = APIException(str(error))
    answer.status_code = status.HTTP_429_TOO_MANY_REQUESTS
    answer.wait = max(1, math.ceil(error.wait_seconds))  # type: ignore[attr-defined]
    return answer


def handle_error(error: Exception, context: dict[str, Any]) -> Response | None:
    """Map a `DomainError` to 400, 403, 409, 413 or 429, and a large body to 413.

    Other errors are left to DRF.
    """
    if isinstance(error, InvalidFields):
        error = ValidationError(error.problems)
    elif isinstance(error, DomainError):
        answer = APIException(str(error))
        answer.status_code = _STATUS.get(type(error), status.HTTP_400_BAD_REQUEST)
        if isinstance(error, StaleState) and "If-Match" in context["request"].headers:
            answer.status_code = status.HTTP_412_PRECONDITION_FAILED
        if isinstance(error, LimitReached):
            answer = _limit_answer(error)
        error = answer
    elif isinstance(error, RequestDataTooBig):
        error = TooLarge()
    response = exception_handler(error, context)
    if response is not None and isinstance(error, ValidationError):
        by_path = problems(response.data)
        # Problems without a field are about the whole request.
        if "" not in by_path:
            response.data = by_path
        else:
            response.data = {"detail": " ".join(by_path[""])}
    return response
