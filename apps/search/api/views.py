"""The search in logs and scripts in the API."""

from typing import Any
from urllib.parse import urlencode

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.exceptions import APIException
from rest_framework.response import Response

from apps.accounts.api import ApiRequest, ApiView
from apps.core.api.input import checked_data
from apps.core.errors import InvalidFields
from apps.search.domain.engine.base import Cursor, SearchRefused, SearchScope, SearchUnavailable
from apps.search.domain.engine.chosen import engine_in_use
from apps.search.domain.gaps import not_searched
from apps.search.domain.query.clauses import QueryError, Source
from apps.search.domain.query.parser import LONGEST_QUERY, parse
from apps.search.domain.results import MatchingLine, SearchResult, results_of

SIZE = 50


class IndexUnavailable(APIException):
    """The index of logs does not answer."""

    status_code = status.HTTP_503_SERVICE_UNAVAILABLE
    default_code = "unavailable"


class SearchQuery(serializers.Serializer[Any]):
    """What to search for, and where to go on."""

    q = serializers.CharField(
        max_length=LONGEST_QUERY, help_text="The query: [syntax](/help/search/)."
    )
    after = serializers.CharField(
        required=False, max_length=200, help_text="Where to go on, from `next` of an answer."
    )

    def validate_after(self, value: str) -> Cursor:
        cursor = Cursor.of(value)
        if cursor is None:
            raise serializers.ValidationError("This is not from `next` of an answer.")
        return cursor


class MatchingLineSerializer(serializers.Serializer[MatchingLine]):
    """A line that the query asks for."""

    stream = serializers.CharField(help_text="stderr or stdout; empty for scripts.")
    number = serializers.IntegerField(allow_null=True, help_text="From 1; null if unknown.")
    offset = serializers.IntegerField(help_text="Its first byte in the log.")
    text = serializers.CharField(help_text="The line, cut if it is long.")


class ResultSerializer(serializers.Serializer[SearchResult]):
    """A job whose log, script or environment matches."""

    found_in = serializers.ChoiceField(
        choices=[(source.value, source.value) for source in Source], source="hit.source"
    )
    at = serializers.DateTimeField(
        source="hit.at", help_text="End of the job, or submission of the script."
    )
    job = serializers.IntegerField(
        source="job.pk", default=None, allow_null=True, help_text="For logs: as in `/jobs/`."
    )
    archived_job = serializers.IntegerField(
        source="archived.pk",
        default=None,
        allow_null=True,
        help_text="For scripts and environments: as in `/archive/`.",
    )
    job_id = serializers.CharField(source="row.job_id")
    cluster = serializers.CharField(source="row.cluster.name")
    state = serializers.CharField(
        source="row.state", help_text="Empty for scripts until accounting knows the job."
    )
    lines = MatchingLineSerializer(many=True, help_text="The first matching lines.")


class TextSearchSerializer(serializers.Serializer[Any]):
    """Results, newest first."""

    results = ResultSerializer(many=True)
    next = serializers.CharField(
        allow_null=True, help_text="URL of the next results; null at the end."
    )
    searched_back_to = serializers.DateTimeField(
        allow_null=True,
        help_text="Set if time was over before the page was full: `next` goes on there.",
    )
    not_searched = serializers.ListField(child=serializers.CharField())


class TextSearchView(ApiView):
    """Search in logs and scripts."""

    @extend_schema(
        parameters=[SearchQuery], responses=TextSearchSerializer, operation_id="search_retrieve"
    )
    def get(self, request: ApiRequest) -> Response:
        """Return the newest jobs whose logs or scripts match, with the matching lines.

        An answer can be empty and still have a `next`: then the time for one answer was over.
        """
        parameters = checked_data(SearchQuery(data=request.query_params))
        scope = SearchScope(request.user, timezone.now())
        try:
            query = parse(parameters["q"])
            hits = engine_in_use().search(query, scope, after=parameters.get("after"), size=SIZE)
        except (QueryError, SearchRefused) as error:
            raise InvalidFields({"q": [str(error)]}) from None
        except SearchUnavailable as error:
            raise IndexUnavailable(str(error)) from None
        next_url = None
        if hits.after is not None:
            next_page = urlencode({"q": parameters["q"], "after": str(hits.after)})
            next_url = request.build_absolute_uri(f"?{next_page}")
        answer = {
            "results": results_of(hits.rows, query, request.user),
            "next": next_url,
            "searched_back_to": hits.after.at if hits.after and hits.stopped else None,
            "not_searched": not_searched(query),
        }
        return Response(TextSearchSerializer(answer).data)
