"""Endpoints of datasets: the list, and one with its provenance. They change nothing."""

from typing import ClassVar

from django.db.models import QuerySet
from django.http import Http404
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.api import ApiViewSet
from apps.datasets.api.serializers import DatasetReader, ProvenanceReader
from apps.datasets.domain.listing import rows_of_stages, written_datasets
from apps.datasets.domain.provenance import provenance_of
from apps.datasets.filters import ORDERS, DatasetFilter
from apps.production.models import Stage


class DatasetViewSet(ApiViewSet[Stage]):
    """Datasets that requests make. Answers of catalogues are stored ones: none is asked."""

    serializer_class = DatasetReader
    filterset_class = DatasetFilter
    orderings: ClassVar[dict[str, str]] = {"name": ORDERS["name"]}

    def get_queryset(self) -> QuerySet[Stage]:
        return written_datasets(self.request.user)

    @extend_schema(responses=DatasetReader(many=True))
    def list(self, request: Request) -> Response:
        """List the datasets of the requests that you can see, newest request first."""
        stages = self.paginate_queryset(self.filter_queryset(self.get_queryset()))
        rows = rows_of_stages(list(stages or ()), self.request.user)
        return self.get_paginated_response(DatasetReader(rows, many=True).data)

    @extend_schema(
        parameters=[OpenApiParameter("name", str, required=True, description="The whole name.")],
        responses=ProvenanceReader,
        filters=False,
    )
    @action(detail=False, filterset_class=None, pagination_class=None)
    def provenance(self, request: Request) -> Response:
        """Return a dataset with its provenance; 404 if no request that you can see names it."""
        provenance = provenance_of(request.query_params.get("name", ""), self.request.user)
        if provenance is None:
            raise Http404
        return Response(ProvenanceReader(provenance).data)
