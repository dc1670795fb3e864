"""Views of the API: a call has a user, and one that changes something is one domain function."""

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar

from django.db.models import Model
from django.utils import timezone
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer
from rest_framework.views import APIView
from rest_framework.viewsets import GenericViewSet

from apps.accounts.models import User
from apps.core.api.input import checked_data

M = TypeVar("M", bound=Model)
Serializer = type[BaseSerializer[Any]]

#: Names of methods that have a route without being declared as an action.
_STANDARD = frozenset({"create", "update", "partial_update", "destroy"})


class ApiRequest(Request):
    """What views of the API take: a call of a user, as nobody else is let in."""

    user: User


class ApiView(APIView):
    """A view of the API, for users."""

    request: ApiRequest

    def given(self, writer: Serializer | None) -> dict[str, Any]:
        """Return what was sent, checked, with who sends it and when: what a domain function takes."""
        sent = checked_data(writer(data=self.request.data)) if writer else {}
        return {**sent, "by": self.request.user, "at": timezone.now()}


class ApiViewSet(ApiView, GenericViewSet[M]):
    """A viewset of the API, for users."""

    def about(self) -> Any:
        """Return what a command is about: the object of the address, or None if it names none."""
        return self.get_object() if self.detail else None

    def answer(self, done: Any, reader: Serializer | None, code: int = 200) -> Response:
        """Answer a command with what it returned."""
        return Response(reader(done, context=self.get_serializer_context()).data if reader else None, status=code)


def command(
    writer: Serializer | None = None,
    reader: Any = None,
    *,
    code: int = 200,
    refused: Mapping[int, OpenApiResponse] | None = None,
    **route: Any,
) -> Callable[[Callable[..., Any]], Callable[..., Response]]:
    """Declare a call that changes something: `create`, `update`, `destroy`, or a POST with the method's name.

    The method takes what the call is `about`, if that is anything, and, by keyword, what `writer` reads of the body,
    `by` and `at`. What it returns, or else what the call is about, is answered as `reader` writes it.
    `refused` describes refusals in the schema.
    """
    answers = {code: reader, **(refused or {})}

    def declare(method: Callable[..., Any]) -> Callable[..., Response]:
        @wraps(method)
        def call(view: Any, request: ApiRequest, **_: str) -> Response:
            about = view.about()
            done = method(view, **view.given(writer)) if about is None else method(view, about, **view.given(writer))
            response: Response = view.answer(about if done is None else done, reader, code)
            return response

        described = extend_schema(request=writer, responses=answers)
        if method.__name__ in _STANDARD:
            return described(call)
        return described(action(detail=True, methods=["post"], **route)(call))

    return declare
