"""Splitting, combining and the related requests in the API."""

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers, status
from rest_framework.decorators import action
from rest_framework.response import Response

from apps.accounts.api import ApiRequest
from apps.core.api.input import checked_data
from apps.core.errors import InvalidFields, NotAllowed
from apps.production.api.routes import RequestRoutes
from apps.production.api.serializers import ReasonWriter
from apps.production.domain.content.model import RequestContent
from apps.production.domain.content.serialization import plain
from apps.production.domain.lineage import links
from apps.production.domain.lineage.combination import MAX_COMBINED
from apps.production.domain.lineage.splits import SplitUnit
from apps.production.models import Request


class RelatedReader(serializers.Serializer[Any]):
    """Another request, and what it is to this one."""

    relation = serializers.CharField(source="words", help_text="Such as “Split into”, “Cloned from”.")
    request = serializers.CharField(source="request.key")
    state = serializers.CharField(source="request.state")
    title = serializers.CharField(source="request.title")
    note = serializers.CharField(help_text="Such as which part it is.")


class SplitWriter(ReasonWriter):
    """By what to split, and how many a part has; the last part has what remains."""

    by = serializers.ChoiceField(choices=[way.value for way in SplitUnit])
    size = serializers.IntegerField(min_value=1, max_value=10**12)
    preview = serializers.BooleanField(default=False, help_text="Tell only what would come of it.")


class CombineWriter(ReasonWriter):
    """The other requests, by their keys."""

    others = serializers.ListField(
        child=serializers.CharField(max_length=24), min_length=1, max_length=MAX_COMBINED - 1
    )
    preview = serializers.BooleanField(default=False, help_text="Tell only what would come of it.")


class PartReader(serializers.Serializer[Any]):
    """One request that was made, or would be; `request` is empty in a preview."""

    request = serializers.CharField(allow_blank=True)
    note = serializers.CharField()
    content = serializers.JSONField(help_text="All that it holds, as in YAML.")


class RearrangedReader(serializers.Serializer[Any]):
    """What came of it, or would come."""

    requests = PartReader(many=True)
    notes = serializers.ListField(child=serializers.CharField(), help_text="What you should know of it.")


_ANSWERS: dict[int, Any] = {
    200: RearrangedReader,
    201: RearrangedReader,
    400: OpenApiResponse(description="Why it cannot be done so, by field."),
    403: OpenApiResponse(description="You may not do this."),
    404: OpenApiResponse(description="No such request that you may see."),
    409: OpenApiResponse(description="Jobs were sent for it, or somebody else changed it meanwhile; nothing was done."),
}


class LinkRoutes(RequestRoutes):
    """Routes below a request, for its viewset."""

    @extend_schema(responses=RelatedReader(many=True))
    @action(detail=True, methods=["get"], pagination_class=None, filterset_class=None)
    def related(self, request: ApiRequest, key: str) -> Response:
        """Requests that this one came out of, or that came out of it."""
        related: Any = links.related_to(self.get_object())
        return Response(RelatedReader(related, many=True).data)

    @extend_schema(request=SplitWriter, responses=_ANSWERS)
    @action(detail=True, methods=["post"])
    def split(self, request: ApiRequest, key: str) -> Response:
        """Split a request of which no job was sent into drafts by runs, files or events; they supersede it."""
        wanted = self._allowed(self.get_object())
        sent = checked_data(SplitWriter(data=request.data))
        how: dict[str, Any] = {"by_what": SplitUnit(sent["by"]), "size": sent["size"]}
        planned, keys = links.plan_split(request=wanted, **how), None
        if not sent["preview"]:
            more = {"reason": sent["reason"], "version": sent["version"]}
            made = links.split_request(request=wanted, by=request.user, at=timezone.now(), **how, **more)
            keys = [part.key for part in made]
        parts = [(part.words, part.content) for part in planned.parts]
        return _rearranged(parts, planned.notes, keys)

    @extend_schema(request=CombineWriter, responses=_ANSWERS)
    @action(detail=True, methods=["post"])
    def combine(self, request: ApiRequest, key: str) -> Response:
        """Make one draft of this request and others, of which no job was sent; it supersedes them."""
        wanted = self._allowed(self.get_object())
        sent = self.given(CombineWriter)
        preview, version = sent.pop("preview"), sent.pop("version")
        others = self._named([name for name in sent.pop("others") if name != wanted.key])
        requests = [wanted, *map(self._allowed, others)]
        planned, keys = links.plan_combined(requests=requests), None
        if not preview:
            versions = {wanted.key: version} if version else None
            keys = [links.combine_requests(requests=requests, versions=versions, **sent).key]
        note = f"from {', '.join(each.key for each in requests)}"
        return _rearranged([(note, planned.content)], planned.notes, keys)

    def _named(self, keys: list[str]) -> list[Request]:
        found = {row.key: row for row in self.get_queryset().filter(key__in=keys)}
        if unknown := [key for key in keys if key not in found]:
            raise InvalidFields({"others": [f"There is no request {key} that you may see." for key in unknown]})
        return [found[key] for key in dict.fromkeys(keys)]

    def _allowed(self, wanted: Request) -> Request:
        if not links.may_rearrange(self.request.user, wanted):
            raise NotAllowed(f"Only a liaison of {wanted.experiment} or, once it was sent, an approver may do this.")
        return wanted


def _rearranged(parts: list[tuple[str, RequestContent]], notes: list[str], keys: list[str] | None) -> Response:
    """Tell the note and content of each request that was made under these keys; without any, would be."""
    told = [
        {"request": key, "note": note, "content": plain(content)}
        for key, (note, content) in zip(keys or [""] * len(parts), parts, strict=True)
    ]
    code = status.HTTP_200_OK if keys is None else status.HTTP_201_CREATED
    return Response(RearrangedReader({"requests": told, "notes": notes}).data, status=code)
