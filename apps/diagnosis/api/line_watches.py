"""Watches of lines in the API."""

from datetime import datetime
from typing import Any

from django.db.models import QuerySet
from rest_framework import mixins, serializers

from apps.accounts.api import ApiViewSet, command
from apps.accounts.models import User
from apps.core.errors import InvalidFields
from apps.diagnosis.domain.groups.where_else import hash_line, parse_line_hash
from apps.search.domain.line_watches import (
    WatchedLine,
    unwatch_line,
    watch_line,
    watches_of,
    with_texts,
)
from apps.search.models import LineWatch


class LineWatchReader(serializers.Serializer[WatchedLine]):
    """A line that you watch."""

    id = serializers.IntegerField(source="watch.pk")
    template = serializers.CharField(source="watch.number")
    text = serializers.CharField(
        help_text="The line, with * for what varies; empty if you may no longer see it."
    )
    created_at = serializers.DateTimeField(source="watch.created_at")
    notified_at = serializers.DateTimeField(source="watch.notified_at", allow_null=True)


class LineWatchWriter(serializers.Serializer[Any]):
    """A line, or its template."""

    line = serializers.CharField(
        max_length=1_000,
        required=False,
        help_text="A line of a log; its numbers, paths and IDs are ignored.",
    )
    template = serializers.RegexField(
        r"\A[0-9a-f]{16}\Z", required=False, help_text="Instead of a line: its template."
    )


class LineWatchViewSet(mixins.ListModelMixin, ApiViewSet[LineWatch]):
    """Lines of logs that you watch: you are notified when a job writes one again."""

    queryset = LineWatch.objects.none()
    serializer_class: Any = LineWatchReader
    lookup_value_regex = "[0-9]{1,18}"

    def get_queryset(self) -> QuerySet[LineWatch]:
        return watches_of(self.request.user)

    def paginate_queryset(self, queryset: Any) -> Any:
        rows = super().paginate_queryset(queryset) or []
        return with_texts(rows, user=self.request.user)

    @command(LineWatchWriter, LineWatchReader, code=201)
    def create(self, *, by: User, at: datetime, line: str = "", template: str = "") -> WatchedLine:
        """Watch a line. You are notified at most once an hour, of jobs that you may see."""
        line_hash = parse_line_hash(template) or hash_line(line)
        if not line_hash:
            raise InvalidFields({"line": ["Give a line with words."]})
        watch = watch_line(user=by, line_hash=line_hash, at=at)
        return with_texts([watch], user=by)[0]

    @command(code=204)
    def destroy(self, watch: LineWatch, *, by: User, at: datetime) -> None:
        """Stop watching a line."""
        unwatch_line(user=by, line_hash=watch.unsigned_hash)
