"""The discussion of a request in the API, through the same services as the page."""

from typing import Any

from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import mixins, serializers, status
from rest_framework.decorators import action
from rest_framework.request import Request as ApiRequest
from rest_framework.response import Response

from apps.core.api.conditional import Guarded
from apps.core.api.input import checked_data
from apps.core.errors import InvalidFields
from apps.production.domain import discussion
from apps.production.models import Comment, Request
from apps.production.web.lookup import request_or_404

_ID: dict[str, Any] = {"min_value": 1, "max_value": 2**63 - 1}


class CommentReader(serializers.ModelSerializer[Comment]):
    """A comment; with `thread` it answers the one of this id, without it begins a thread, which may be resolved."""

    thread = serializers.IntegerField(source="thread_id", allow_null=True)
    by = serializers.CharField(source="by.username")
    resolved_by = serializers.CharField(source="resolved_by.username", allow_null=True, default=None)

    class Meta:
        model = Comment
        fields = [
            "id",
            "thread",
            "field",
            "place",
            "text",
            "by",
            "at",
            "edited_at",
            "withdrawn_at",
            "resolved_at",
            "resolved_by",
        ]
        read_only_fields = fields


class CommentText(serializers.Serializer[Any]):
    """What is said; `@name` tells people who may see the request."""

    text = serializers.CharField(max_length=discussion.MAX_TEXT)


class CommentWriter(CommentText):
    """About the field of this path, or the request as a whole; or an answer in a thread, by the id of any of it."""

    field = serializers.CharField(required=False, allow_blank=True, default="", max_length=120)
    thread = serializers.IntegerField(required=False, allow_null=True, default=None, **_ID)


_ANSWERS = {200: CommentReader, 403: OpenApiResponse(description="It is somebody else's.")}


@extend_schema(parameters=[OpenApiParameter("key", str, OpenApiParameter.PATH)])
class CommentViewSet(Guarded, mixins.ListModelMixin, mixins.RetrieveModelMixin):
    """What is said about a request and its fields, the oldest first."""

    queryset = Comment.objects.none()
    serializer_class = CommentReader
    pagination_class = None  # a request takes discussion.MAX_COMMENTS
    filter_backends = ()
    lookup_value_regex = "[0-9]{1,18}"

    def get_queryset(self) -> QuerySet[Comment]:
        found: QuerySet[Comment] = self._wanted().comments.select_related("by", "resolved_by", "thread", "request")
        return found.order_by("id")

    @extend_schema(request=CommentWriter, responses={201: CommentReader})
    def create(self, request: ApiRequest, **_: str) -> Response:
        """Say something about the request or one of its fields, or answer."""
        wanted, given = self._wanted(), checked_data(CommentWriter(data=request.data))
        thread = None
        if given["thread"] is not None:
            thread = wanted.comments.filter(pk=given["thread"]).first()
            if thread is None:
                raise InvalidFields({"thread": ["There is no such comment on this request."]})
        made = discussion.write_comment(
            request=wanted,
            text=given["text"],
            path=given["field"],
            thread=thread,
            by=request.user,  # type: ignore[arg-type]
            at=timezone.now(),
        )
        return Response(CommentReader(made).data, status=status.HTTP_201_CREATED)

    @extend_schema(request=CommentText, responses=_ANSWERS)
    def partial_update(self, request: ApiRequest, **_: str) -> Response:
        """Change what you have said yourself."""
        comment, given = self.get_object(), checked_data(CommentText(data=request.data))
        changed = discussion.edit_comment(comment=comment, text=given["text"], by=request.user, at=timezone.now())  # type: ignore[arg-type]
        return Response(CommentReader(changed).data)

    @extend_schema(request=None, responses=_ANSWERS)
    @action(detail=True, methods=["post"])
    def withdraw(self, request: ApiRequest, **_: str) -> Response:
        """Take back what you have said: its text is gone, its place stays."""
        taken = discussion.withdraw_comment(comment=self.get_object(), by=request.user, at=timezone.now())  # type: ignore[arg-type]
        return Response(CommentReader(taken).data)

    @extend_schema(request=None, responses=_ANSWERS)
    @action(detail=True, methods=["post"])
    def resolve(self, request: ApiRequest, **_: str) -> Response:
        """Say that a thread needs nothing more; answers with its first comment."""
        return self._resolve(request, resolved=True)

    @extend_schema(request=None, responses=_ANSWERS)
    @action(detail=True, methods=["post"])
    def reopen(self, request: ApiRequest, **_: str) -> Response:
        """Say that a thread needs something again; answers with its first comment."""
        return self._resolve(request, resolved=False)

    def _resolve(self, request: ApiRequest, *, resolved: bool) -> Response:
        first = discussion.resolve_thread(
            comment=self.get_object(),
            by=request.user,  # type: ignore[arg-type]
            at=timezone.now(),
            resolved=resolved,
        )
        return Response(CommentReader(first).data)

    def _wanted(self) -> Request:
        return request_or_404(self.request.user, self.kwargs.get("key", ""))
