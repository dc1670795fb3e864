"""Base views of the API for users.

A call that changes something calls one domain function.
"""

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar

from django.db.models import Model, QuerySet
from django.utils import timezone
from drf_spectacular.utils import (
    OpenApiParameter,
    OpenApiResponse,
    extend_schema,
    extend_schema_view,
)
from rest_framework import mixins, serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer
from rest_framework.viewsets import GenericViewSet

from apps.accounts.domain.experiments import visible_experiments
from apps.accounts.domain.saved_views import (
    MOST_QUERY,
    check_owner,
    delete_view,
    is_list_path,
    kept_query,
    save_view,
    views_for,
)
from apps.accounts.models import Experiment, SavedView, User
from apps.core.api.input import checked_data
from apps.core.api.views import StrictView

M = TypeVar("M", bound=Model)
C = TypeVar("C", bound=Callable[..., Any])
Serializer = type[BaseSerializer[Any]]
Allowed = Callable[[User, Any], bool | None]

#: Methods whose route does not need `action`.
_STANDARD = frozenset({"create", "update", "partial_update", "destroy"})


def allowed_by(check: Allowed) -> Callable[[C], C]:
    """Declare who may make a call; other users get 403 whatever they send.

    The check takes the user and the target, if any. It returns False or raises `NotAllowed` to deny
    the call.
    """

    def declare(call: C) -> C:
        @wraps(call)
        def checked(view: "ApiViewSet[Any]", *positional: Any, **named: Any) -> Any:
            view.check_allowed()
            return call(view, *positional, **named)

        checked.allowed = check  # type: ignore[attr-defined]
        return checked  # type: ignore[return-value]

    return declare


class ApiRequest(Request):
    """A request of an authenticated user."""

    user: User


class ApiView(StrictView):
    """A view for authenticated users."""

    request: ApiRequest

    def domain_arguments(self, writer: Serializer | None) -> dict[str, Any]:
        """Return the validated body with `by` and `at`: the arguments of a domain function."""
        if writer:
            sent = checked_data(writer(data=self.request.data, context={"request": self.request}))
        else:
            sent = {}
        return {**sent, "by": self.request.user, "at": timezone.now()}


class ApiViewSet(ApiView, GenericViewSet[M]):
    """A viewset for authenticated users."""

    def find_target(self) -> Any:
        """Return the target of a command: the object of the URL, or None."""
        return self.get_object() if self.detail else None

    def check_allowed(self) -> None:
        """Look up the target, and apply the check that the call declares."""
        self.refuse_unless(getattr(getattr(self, self.action), "allowed", None), self.find_target())

    def refuse_unless(self, allowed: Allowed | None, target: Any) -> None:
        """Raise if the user may not make a call for a target, according to `allowed`."""
        if allowed and allowed(self.request.user, target) is False:
            self.permission_denied(self.request)

    def respond(self, result: Any, reader: Serializer | None, code: int = 200) -> Response:
        """Return the response of a command."""
        return Response(
            reader(result, context=self.get_serializer_context()).data if reader else None,
            status=code,
        )


def command(
    writer: Serializer | None = None,
    reader: Any = None,
    *,
    code: int = 200,
    refused: Mapping[int, OpenApiResponse] | None = None,
    allowed: Allowed | None = None,
    **route: Any,
) -> Callable[[Callable[..., Any]], Callable[..., Response]]:
    """Declare a call that changes something.

    The method is `create`, `update` or `destroy`, or becomes a POST route of its name. It takes the
    target (`find_target`), if any, and as keywords the body parsed by `writer`, `by` and `at`. The
    response is its result, or else the target, as serialized by `reader`. `refused` documents
    errors in the schema. `allowed` is what `allowed_by` returns.
    """
    answers = {code: reader, **(refused or {})}

    def declare(method: Callable[..., Any]) -> Callable[..., Response]:
        @wraps(method)
        def call(view: Any, request: ApiRequest, **_: str) -> Response:
            target = view.find_target()
            view.refuse_unless(allowed, target)
            if target is None:
                result = method(view, **view.domain_arguments(writer))
            else:
                result = method(view, target, **view.domain_arguments(writer))
            response: Response = view.respond(target if result is None else result, reader, code)
            return response

        call.allowed = allowed  # type: ignore[attr-defined]
        described = extend_schema(request=writer, responses=answers)
        if method.__name__ in _STANDARD:
            return described(call)
        return described(action(detail=True, methods=["post"], **route)(call))

    return declare


class SavedViewReader(serializers.ModelSerializer[SavedView]):
    """A list with its filters. `experiment` is the one it is shared with, null if it is private."""

    owner = serializers.CharField(source="owner.username", read_only=True)
    experiment = serializers.CharField(
        source="experiment.key", read_only=True, allow_null=True, default=None
    )

    class Meta:
        model = SavedView
        fields = ["id", "owner", "path", "name", "query", "experiment"]
        read_only_fields = fields


class _Shareable(serializers.SlugRelatedField[Experiment]):
    """The key of an experiment with which the user can share views; others are not found."""

    def get_queryset(self) -> QuerySet[Experiment]:
        request = self.context.get("request")
        if request:
            return visible_experiments(request.user)
        return Experiment.objects.none()


class SavedViewChange(serializers.Serializer[Any]):
    """Omitted fields stay unchanged."""

    name = serializers.CharField(max_length=60, required=False)
    query = serializers.CharField(max_length=MOST_QUERY, required=False, allow_blank=True)
    experiment = _Shareable(
        "key", queryset=Experiment.objects.none(), required=False, allow_null=True
    )

    def validate_query(self, query: str) -> str:
        return kept_query(query)


class SavedViewWriter(SavedViewChange):
    """A view of the list at `path`, such as `/requests/`. It replaces your view of that name."""

    path = serializers.CharField(max_length=100, validators=[is_list_path])
    name = serializers.CharField(max_length=60)
    query = serializers.CharField(max_length=MOST_QUERY, default="", allow_blank=True)


_PATH = OpenApiParameter("path", str, description="Only views of this list, such as `/requests/`.")


@extend_schema_view(list=extend_schema(parameters=[_PATH]))
class SavedViewViewSet(mixins.ListModelMixin, mixins.RetrieveModelMixin, ApiViewSet[SavedView]):
    """Your saved views, and those shared with your experiments."""

    queryset = SavedView.objects.none()
    serializer_class = SavedViewReader
    lookup_value_regex = "[0-9]{1,18}"

    def get_queryset(self) -> QuerySet[SavedView]:
        views = views_for(self.request.user)
        path = self.request.query_params.get("path")
        if path and self.action == "list":
            views = views.filter(path=path)
        return views

    @command(SavedViewWriter, SavedViewReader, code=201)
    def create(self, *, by: User, at: Any, **fields: Any) -> SavedView:
        """Save a view. With `experiment`, its members see the view too."""
        return save_view(owner=by, **fields)

    @command(SavedViewChange, SavedViewReader, allowed=check_owner)
    def partial_update(self, view: SavedView, *, by: User, at: Any, **fields: Any) -> SavedView:
        """Rename, change or share one of your views."""
        now = {"name": view.name, "query": view.query, "experiment": view.experiment}
        return save_view(owner=by, view=view, path=view.path, **{**now, **fields})

    @command(code=204, allowed=check_owner)
    def destroy(self, view: SavedView, *, by: User, at: Any) -> None:
        """Delete one of your views."""
        delete_view(view=view, by=by)
