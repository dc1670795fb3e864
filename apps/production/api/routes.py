"""Base classes for viewsets of requests, for this app and the apps above it."""

from typing import Any

from django.db.models import QuerySet
from rest_framework.pagination import BasePagination
from rest_framework.response import Response

from apps.accounts.api import ApiViewSet, Serializer
from apps.core.api.conditional import Guarded
from apps.production.models import Request


class OfRequests(ApiViewSet[Request]):
    """A viewset of the requests visible to the user, by key."""

    pagination_class: type[BasePagination] | None = None
    lookup_field = "key"
    lookup_value_regex = "[^/.]+"

    def get_queryset(self) -> QuerySet[Request]:
        return Request.objects.visible_to(self.request.user).select_related("experiment")


class RequestRoutes(Guarded, OfRequests):
    """Base of the mix-ins of `RequestViewSet`. A changed request is read again for the response."""

    def respond(self, result: Any, reader: Serializer | None, code: int = 200) -> Response:
        if isinstance(result, Request):
            result = self.get_queryset().get(key=result.key)
        return super().respond(result, reader, code)
