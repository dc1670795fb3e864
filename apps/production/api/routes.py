"""What viewsets of requests have in common, here and in the apps above."""

from typing import Any

from django.db.models import QuerySet
from rest_framework.pagination import BasePagination
from rest_framework.response import Response

from apps.accounts.api import ApiViewSet, Serializer
from apps.core.api.conditional import Guarded
from apps.production.models import Request


class OfRequests(ApiViewSet[Request]):
    """A viewset of the requests that the user may see, by their keys."""

    pagination_class: type[BasePagination] | None = None
    lookup_field = "key"
    lookup_value_regex = "[^/.]+"

    def get_queryset(self) -> QuerySet[Request]:
        return Request.objects.visible_to(self.request.user).select_related("experiment")


class RequestRoutes(Guarded, OfRequests):
    """Routes of `RequestViewSet`; a request that was changed is answered as it is now."""

    def answer(self, done: Any, reader: Serializer | None, code: int = 200) -> Response:
        again = self.get_queryset().get(key=done.key) if isinstance(done, Request) else done
        return super().answer(again, reader, code)
