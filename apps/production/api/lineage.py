"""Splitting, combining and the related requests in the API."""

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers, status
from rest_framework.decorators import action
from rest_framework.response import Response

from apps.accounts.api import ApiRequest, allowed_by
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
    """A related request and its relation to this one."""

    relation = serializers.CharField(
        source="label", help_text="Such as “Split into”, “Cloned from”."
    )
    request = serializers.CharField(source="request.key")
    state = serializers.CharField(source="request.state")
    title = serializers.CharField(source="request.title")
    note = serializers.CharField(help_text="Such as which part it is.")


class SplitWriter(ReasonWriter):
    """The unit to split by and the size of a part. The last part has the remainder."""

    by = serializers.ChoiceField(choices=[way.value for way in SplitUnit])
    size = serializers.IntegerField(min_value=1, max_value=10**12)
    preview = serializers.BooleanField(
        default=False, help_text="Only return the result; change nothing."
    )


class CombineWriter(ReasonWriter):
    """The other requests, by key."""

    others = serializers.ListField(
        child=serializers.CharField(max_length=24), min_length=1, max_length=MAX_COMBINED - 1
    )
    preview = serializers.BooleanField(
        default=False, help_text="Only return the result; change nothing."
    )


class PartReader(serializers.Serializer[Any]):
    """A new request. `request` is empty in a preview."""

    request = serializers.CharField(allow_blank=True)
    note = serializers.CharField()
    content = serializers.JSONField(help_text="Its content, as in YAML.")


class RearrangedReader(serializers.Serializer[Any]):
    """The new requests, or those that would be created, with remarks."""

    requests = PartReader(many=True)
    notes = serializers.ListField(child=serializers.CharField(), help_text="Remarks on the result.")


_ANSWERS: dict[int, Any] = {
    200: RearrangedReader,
    201: RearrangedReader,
    400: OpenApiResponse(description="Problems by field."),
    403: OpenApiResponse(description="You do not have permission."),
    404: OpenApiResponse(description="Not found, or you do not have access."),
    409: OpenApiResponse(
        description="Jobs were submitted, or the request has changed. Nothing was changed."
    ),
}


class LinkRoutes(RequestRoutes):
    @extend_schema(responses=RelatedReader(many=True))
    @action(detail=True, methods=["get"], pagination_class=None, filterset_class=None)
    def related(self, request: ApiRequest, key: str) -> Response:
        """List the requests that this one was made from, and those made from it."""
        related: Any = links.related_to(self.get_object())
        return Response(RelatedReader(related, many=True).data)

    @allowed_by(links.may_rearrange)
    @extend_schema(request=SplitWriter, responses=_ANSWERS)
    @action(detail=True, methods=["post"])
    def split(self, request: ApiRequest, key: str) -> Response:
        """Split a request without submitted jobs by runs, files or events.

        The parts are drafts, which supersede the request.
        """
        production_request = self._allowed(self.get_object())
        sent = checked_data(SplitWriter(data=request.data))
        how: dict[str, Any] = {"by_what": SplitUnit(sent["by"]), "size": sent["size"]}
        planned = links.plan_split(request=production_request, **how)
        keys = None
        if not sent["preview"]:
            more = {"reason": sent["reason"], "version": sent["version"]}
            made = links.split_request(
                request=production_request, by=request.user, at=timezone.now(), **how, **more
            )
            keys = [part.key for part in made]
        parts = [(part.note, part.content) for part in planned.parts]
        return _new_requests_response(parts, planned.notes, keys)

    @allowed_by(links.may_rearrange)
    @extend_schema(request=CombineWriter, responses=_ANSWERS)
    @action(detail=True, methods=["post"])
    def combine(self, request: ApiRequest, key: str) -> Response:
        """Combine this request with others without submitted jobs into one draft.

        The draft supersedes all of them.
        """
        production_request = self._allowed(self.get_object())
        sent = self.domain_arguments(CombineWriter)
        preview = sent.pop("preview")
        version = sent.pop("version")
        others = self._named(
            [name for name in sent.pop("others") if name != production_request.key]
        )
        requests = [production_request, *map(self._allowed, others)]

        planned = links.plan_combined(requests=requests)
        keys = None
        if not preview:
            versions = {production_request.key: version} if version else None
            keys = [links.combine_requests(requests=requests, versions=versions, **sent).key]
        note = f"from {', '.join(combined.key for combined in requests)}"
        return _new_requests_response([(note, planned.content)], planned.notes, keys)

    def _named(self, keys: list[str]) -> list[Request]:
        requests = {
            production_request.key: production_request
            for production_request in self.get_queryset().filter(key__in=keys)
        }
        problems = []
        for key in keys:
            if key not in requests:
                problems.append(f"{key}: not found, or you do not have access.")
        if problems:
            raise InvalidFields({"others": problems})
        return [requests[key] for key in dict.fromkeys(keys)]

    def _allowed(self, production_request: Request) -> Request:
        if not links.may_rearrange(self.request.user, production_request):
            raise NotAllowed(
                f"Only liaisons of {production_request.experiment} and, once it is submitted, "
                "approvers can do this."
            )
        return production_request


def _new_requests_response(
    parts: list[tuple[str, RequestContent]], notes: list[str], keys: list[str] | None
) -> Response:
    """Return the note and content of each request, with its key if it was created."""
    new_requests = []
    for key, (note, content) in zip(keys or [""] * len(parts), parts, strict=True):
        new_requests.append({"request": key, "note": note, "content": plain(content)})
    code = status.HTTP_200_OK if keys is None else status.HTTP_201_CREATED
    return Response(RearrangedReader({"requests": new_requests, "notes": notes}).data, status=code)
