"""How the API answers errors of the domain."""

from typing import Any

from rest_framework import status
from rest_framework.exceptions import APIException, ValidationError
from rest_framework.response import Response
from rest_framework.views import exception_handler

from apps.core.errors import DomainError, InvalidFields, InvalidTransition, NotAllowed, StaleState

_STATUS = {
    NotAllowed: status.HTTP_403_FORBIDDEN,
    InvalidTransition: status.HTTP_409_CONFLICT,
    StaleState: status.HTTP_409_CONFLICT,
}


def handle_error(error: Exception, context: dict[str, Any]) -> Response | None:
    """Answer a `DomainError` with 403, 409 or 400 and its message; all else as DRF does."""
    if isinstance(error, InvalidFields):
        error = ValidationError(error.problems)
    elif isinstance(error, DomainError):
        answer = APIException(str(error))
        answer.status_code = _STATUS.get(type(error), status.HTTP_400_BAD_REQUEST)
        error = answer
    return exception_handler(error, context)
