"""Splitting, combining and the related requests in the API."""

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers, status
from rest_framework.decorators import action
from rest_framework.request import Request as ApiRequest
from rest_framework.response import Response

from apps.core.api.input import checked_data
from apps.core.errors import InvalidFields, NotAllowed
from apps.production.api.serializers import ReasonWriter
from apps.production.domain.content.model import RequestContent
from apps.production.domain.content.plain import plain
from apps.production.domain.lineage import links
from apps.production.domain.lineage.combination import MAX_COMBINED
from apps.production.domain.lineage.splits import By
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

    by = serializers.ChoiceField(choices=[way.value for way in By])
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


class LinkRoutes:
    """Routes below a request, for its viewset."""

    get_object: Any
    get_queryset: Any

    @extend_schema(responses=RelatedReader(many=True))
    @action(detail=True, methods=["get"], pagination_class=None, filterset_class=None)
    def related(self, request: ApiRequest, key: str) -> Response:
        """Requests that this one came out of, or that came out of it."""
        return Response(RelatedReader(links.related_to(self.get_object()), many=True).data)

    @extend_schema(request=SplitWriter, responses=_ANSWERS)
    @action(detail=True, methods=["post"])
    def split(self, request: ApiRequest, key: str) -> Response:
        """Split a request of which no job was sent into drafts by runs, files or events; they supersede it."""
        wanted = _allowed(request, self.get_object())
        sent = checked_data(SplitWriter(data=request.data))
        planned = links.plan_split(request=wanted, by_what=By(sent["by"]), size=sent["size"])
        keys = [""] * len(planned.parts)
        if not sent["preview"]:
            made = links.split_request(
                request=wanted,
                by_what=By(sent["by"]),
                size=sent["size"],
                by=request.user,  # type: ignore[arg-type]
                at=timezone.now(),
                reason=sent["reason"],
                version=sent["version"],
            )
            keys = [part.key for part in made]
        parts = [_part(made, part.words, part.content) for made, part in zip(keys, planned.parts, strict=True)]
        return _answer(parts, planned.notes, done=not sent["preview"])

    @extend_schema(request=CombineWriter, responses=_ANSWERS)
    @action(detail=True, methods=["post"])
    def combine(self, request: ApiRequest, key: str) -> Response:
        """Make one draft of this request and others, of which no job was sent; it supersedes them."""
        wanted = _allowed(request, self.get_object())
        sent = checked_data(CombineWriter(data=request.data))
        others = self._named([name for name in sent["others"] if name != wanted.key])
        requests = [wanted, *(_allowed(request, other) for other in others)]
        planned, made = links.plan_combined(requests=requests), ""
        if not sent["preview"]:
            made = links.combine_requests(
                requests=requests,
                by=request.user,  # type: ignore[arg-type]
                at=timezone.now(),
                reason=sent["reason"],
                versions={wanted.key: sent["version"]} if sent["version"] else None,
            ).key
        note = f"from {', '.join(each.key for each in requests)}"
        return _answer([_part(made, note, planned.content)], planned.notes, done=not sent["preview"])

    def _named(self, keys: list[str]) -> list[Request]:
        found = {row.key: row for row in self.get_queryset().filter(key__in=keys)}
        if unknown := [key for key in keys if key not in found]:
            raise InvalidFields({"others": [f"There is no request {key} that you may see." for key in unknown]})
        return [found[key] for key in dict.fromkeys(keys)]


def _allowed(request: ApiRequest, wanted: Request) -> Request:
    if not links.may_rearrange(request.user, wanted):
        raise NotAllowed(f"Only a liaison of {wanted.experiment} or, once it was sent, an approver may do this.")
    return wanted


def _part(key: str, note: str, content: RequestContent) -> dict[str, Any]:
    return {"request": key, "note": note, "content": plain(content)}


def _answer(parts: list[dict[str, Any]], notes: list[str], *, done: bool) -> Response:
    code = status.HTTP_201_CREATED if done else status.HTTP_200_OK
    return Response(RearrangedReader({"requests": parts, "notes": notes}).data, status=code)
