"""Base views of the API: a call has a user, and one that changes something calls one domain function."""

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
from rest_framework.viewsets import GenericViewSet

from apps.accounts.models import User
from apps.core.api.input import checked_data
from apps.core.api.views import StrictView

M = TypeVar("M", bound=Model)
C = TypeVar("C", bound=Callable[..., Any])
Serializer = type[BaseSerializer[Any]]
Allowed = Callable[[User, Any], bool | None]

#: Methods that have a route without `action`.
_STANDARD = frozenset({"create", "update", "partial_update", "destroy"})


def allowed_by(check: Allowed) -> Callable[[C], C]:
    """Declare who may make a call: users who may not get 403, whatever they send.

    The check takes the user and the target, if any, and returns False or raises `NotAllowed` for them.
    """

    def declare(call: C) -> C:
        @wraps(call)
        def checked(view: "ApiViewSet[Any]", *given: Any, **named: Any) -> Any:
            view.check_allowed()
            return call(view, *given, **named)

        checked.allowed = check  # type: ignore[attr-defined]
        return checked  # type: ignore[return-value]

    return declare


class ApiRequest(Request):
    """A call of an authenticated user."""

    user: User


class ApiView(StrictView):
    """A view for users."""

    request: ApiRequest

    def given(self, writer: Serializer | None) -> dict[str, Any]:
        """Return the checked body with `by` and `at`: the arguments of a domain function."""
        sent = checked_data(writer(data=self.request.data, context={"request": self.request})) if writer else {}
        return {**sent, "by": self.request.user, "at": timezone.now()}


class ApiViewSet(ApiView, GenericViewSet[M]):
    """A viewset for users."""

    def about(self) -> Any:
        """Return the target of a command: the object of the URL, or None."""
        return self.get_object() if self.detail else None

    def check_allowed(self) -> None:
        """Look up the target, and apply the check that the call declares."""
        self.refuse_unless(getattr(getattr(self, self.action), "allowed", None), self.about())

    def refuse_unless(self, allowed: Allowed | None, about: Any) -> None:
        """Raise if the user may not make a call for a target, by what the call declares."""
        if allowed and allowed(self.request.user, about) is False:
            self.permission_denied(self.request)

    def answer(self, done: Any, reader: Serializer | None, code: int = 200) -> Response:
        """Return the response of a command."""
        return Response(reader(done, context=self.get_serializer_context()).data if reader else None, status=code)


def command(
    writer: Serializer | None = None,
    reader: Any = None,
    *,
    code: int = 200,
    refused: Mapping[int, OpenApiResponse] | None = None,
    allowed: Allowed | None = None,
    **route: Any,
) -> Callable[[Callable[..., Any]], Callable[..., Response]]:
    """Declare a call that changes something: `create`, `update`, `destroy`, or a POST with the method's name.

    The method takes the target (`about`), if any, and by keyword the body as read by `writer`, `by` and `at`. The
    response is its result, or else the target, as written by `reader`. `refused` documents errors in the schema.
    `allowed` is that of `allowed_by`.
    """
    answers = {code: reader, **(refused or {})}

    def declare(method: Callable[..., Any]) -> Callable[..., Response]:
        @wraps(method)
        def call(view: Any, request: ApiRequest, **_: str) -> Response:
            about = view.about()
            view.refuse_unless(allowed, about)
            done = method(view, **view.given(writer)) if about is None else method(view, about, **view.given(writer))
            response: Response = view.answer(about if done is None else done, reader, code)
            return response

        call.allowed = allowed  # type: ignore[attr-defined]
        described = extend_schema(request=writer, responses=answers)
        if method.__name__ in _STANDARD:
            return described(call)
        return described(action(detail=True, methods=["post"], **route)(call))

    return declare
