"""The discussion of a request in the API."""

from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.viewsets import ReadOnlyModelViewSet

from apps.accounts.api import ApiViewSet, command
from apps.accounts.models import User
from apps.core.api.conditional import Guarded
from apps.core.errors import InvalidFields
from apps.production.domain import discussion
from apps.production.models import Comment, Request
from apps.production.web.lookup import request_or_404

_ID: dict[str, Any] = {"min_value": 1, "max_value": 2**63 - 1}


class CommentReader(serializers.ModelSerializer[Comment]):
    """A comment. `thread` is the id of the first comment of its thread; null for that comment."""

    thread = serializers.IntegerField(source="thread_id", allow_null=True)
    by = serializers.CharField(source="by.username")
    resolved_by = serializers.CharField(
        source="resolved_by.username", allow_null=True, default=None
    )

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
    """Text of a comment. `@name` notifies a user who can see the request."""

    text = serializers.CharField(max_length=discussion.MAX_TEXT)


class CommentWriter(CommentText):
    """A comment on the request, on a field (its path), or in a thread (id of a comment in it)."""

    field = serializers.CharField(required=False, allow_blank=True, default="", max_length=120)
    thread = serializers.IntegerField(required=False, allow_null=True, default=None, **_ID)


_REFUSED = {403: OpenApiResponse(description="The comment belongs to another user.")}


def _is_own(user: User, comment: Comment) -> bool:
    return comment.by_id == user.pk


@extend_schema(parameters=[OpenApiParameter("key", str, OpenApiParameter.PATH)])
class CommentViewSet(Guarded, ReadOnlyModelViewSet[Comment], ApiViewSet[Comment]):
    """Comments on a request and its fields, oldest first."""

    queryset = Comment.objects.none()
    serializer_class = CommentReader
    # A request has at most discussion.MAX_COMMENTS comments.
    pagination_class = None
    lookup_value_regex = "[0-9]{1,18}"

    def get_queryset(self) -> QuerySet[Comment]:
        return (
            self._visible_request()
            .comments.select_related("by", "resolved_by", "thread", "request")
            .order_by("id")
        )

    def find_target(self) -> Comment | Request:
        return self.get_object() if self.detail else self._visible_request()

    @command(CommentWriter, CommentReader, code=201)
    def create(
        self, production_request: Request, *, field: str, thread: int | None, **fields: Any
    ) -> Comment:
        """Comment on the request or one of its fields, or reply in a thread."""
        first = None
        if thread is not None:
            first = production_request.comments.filter(pk=thread).first()
        if thread is not None and first is None:
            raise InvalidFields({"thread": ["This request has no such comment."]})
        return discussion.write_comment(
            request=production_request, path=field, thread=first, **fields
        )

    @command(CommentText, CommentReader, refused=_REFUSED, allowed=_is_own)
    def partial_update(self, comment: Comment, **fields: Any) -> Comment:
        """Edit your own comment."""
        return discussion.edit_comment(comment=comment, **fields)

    @command(reader=CommentReader, refused=_REFUSED, allowed=_is_own)
    def withdraw(self, comment: Comment, **fields: Any) -> Comment:
        """Withdraw your own comment: its text is deleted, its place in the thread remains."""
        return discussion.withdraw_comment(comment=comment, **fields)

    @command(reader=CommentReader, refused=_REFUSED)
    def resolve(self, comment: Comment, **fields: Any) -> Comment:
        """Resolve a thread. Returns its first comment."""
        return discussion.resolve_thread(comment=comment, resolved=True, **fields)

    @command(reader=CommentReader, refused=_REFUSED)
    def reopen(self, comment: Comment, **fields: Any) -> Comment:
        """Reopen a thread. Returns its first comment."""
        return discussion.resolve_thread(comment=comment, resolved=False, **fields)

    def _visible_request(self) -> Request:
        return request_or_404(self.request.user, self.kwargs.get("key", ""))
