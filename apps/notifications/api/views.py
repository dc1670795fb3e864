"""What one was told of, one's rules, feeds and webhooks, and following a request, in the API."""

from typing import Any, cast

from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import mixins, status
from rest_framework.decorators import action
from rest_framework.request import Request as ApiRequest
from rest_framework.response import Response
from rest_framework.views import APIView
from rest_framework.viewsets import GenericViewSet

from apps.accounts.models import User
from apps.core.api.conditional import Guarded
from apps.core.api.input import checked_data
from apps.core.errors import InvalidFields
from apps.notifications.api.serializers import (
    FeedReader,
    FollowSerializer,
    NotificationReader,
    PreferencesReader,
    PreferencesWriter,
    ReadWriter,
    WebhookReader,
    WebhookWithSecret,
    WebhookWriter,
)
from apps.notifications.domain.feed_addresses import make_feed_address, revoke_feed_address
from apps.notifications.domain.feeds import addresses_of
from apps.notifications.domain.notifications import mark_read, visible_notifications
from apps.notifications.domain.preferences import follow_request, level_of, preferences_of, save_preferences
from apps.notifications.domain.recipients import webhooks_for
from apps.notifications.domain.webhooks import add_webhook, enable_webhook, remove_webhook
from apps.notifications.enums import When
from apps.notifications.models import Notification, Preferences, Webhook
from apps.production.models import Request


def _secret(data: Any, code: int = status.HTTP_200_OK) -> Response:
    """Answer with what nobody on the way may keep."""
    return Response(data, status=code, headers={"Cache-Control": "no-store"})


@extend_schema(parameters=[OpenApiParameter("unread", bool, description="Only what is not read.")])
class NotificationViewSet(mixins.ListModelMixin, GenericViewSet[Notification]):
    """What you were told of, the newest first."""

    queryset = Notification.objects.none()
    serializer_class: Any = NotificationReader
    filter_backends = ()

    def get_queryset(self) -> QuerySet[Notification]:
        rows = visible_notifications(self.request.user).select_related("event", "request")
        only_unread = self.request.query_params.get("unread", "").lower() in {"1", "true"}
        return rows.filter(read_at=None) if only_unread else rows

    @extend_schema(
        request=ReadWriter,
        parameters=[OpenApiParameter("unread", bool, exclude=True)],
        responses={200: OpenApiResponse(response=ReadWriter, description="So many were unread: `read`.")},
    )
    @action(detail=False, methods=["post"], pagination_class=None)
    def read(self, request: ApiRequest) -> Response:
        """Mark all up to the id `until` as read, or only the one of the id `only`."""
        given = checked_data(ReadWriter(data=request.data))
        until = given["until"] if given["until"] is not None else given["only"]
        if until is None:
            raise InvalidFields({"until": ["Give the id of the newest that you have seen, or of one as `only`."]})
        count = mark_read(user=cast(User, request.user), at=timezone.now(), until=until, only=given["only"])
        return Response({"until": given["until"], "only": given["only"], "read": count})


class PreferencesView(APIView):
    """When you are told of what."""

    @extend_schema(operation_id="notification_preferences_retrieve", responses=PreferencesReader)
    def get(self, request: ApiRequest) -> Response:
        """Tell when you are told of what."""
        return self._answer(request)

    @extend_schema(
        operation_id="notification_preferences_update", request=PreferencesWriter, responses=PreferencesReader
    )
    def put(self, request: ApiRequest) -> Response:
        """Choose when you are told of what; groups that are not sent are told as they are to everybody."""
        given = checked_data(PreferencesWriter(data=request.data))
        save_preferences(
            user=cast(User, request.user),
            digest_hour=given["digest_hour"],
            quiet_from=given["quiet_from"],
            quiet_until=given["quiet_until"],
            rules={(rule["channel"], rule["group"]): When(rule["when"]) for rule in given["rules"]},
        )
        return self._answer(request)

    def _answer(self, request: ApiRequest) -> Response:
        user = User.objects.select_related("notification_preferences").get(pk=cast(User, request.user).pk)
        return Response(PreferencesReader(preferences_of(user)).data)


class FeedsView(APIView):
    """The secret addresses of your Atom feeds."""

    @extend_schema(operation_id="feed_addresses_list", responses=FeedReader(many=True))
    def get(self, request: ApiRequest) -> Response:
        """List them; none until you have made them."""
        return self._answer(request)

    @extend_schema(operation_id="feed_addresses_create", request=None, responses={201: FeedReader(many=True)})
    def post(self, request: ApiRequest) -> Response:
        """Make new ones; those before work no more."""
        make_feed_address(user=cast(User, request.user), by=request.user, at=timezone.now())
        return self._answer(request, status.HTTP_201_CREATED)

    @extend_schema(operation_id="feed_addresses_destroy", responses={204: None})
    def delete(self, request: ApiRequest) -> Response:
        """Make them useless."""
        revoke_feed_address(user=cast(User, request.user), by=request.user, at=timezone.now())
        return Response(status=status.HTTP_204_NO_CONTENT)

    def _answer(self, request: ApiRequest, code: int = status.HTTP_200_OK) -> Response:
        found = Preferences.objects.select_related("user").filter(user=request.user.pk).first()
        rows = [{"of": name, "address": address} for name, address in addresses_of(found).items()]
        return _secret(FeedReader(rows, many=True).data, code)


class WebhookViewSet(Guarded, mixins.ListModelMixin, mixins.RetrieveModelMixin):
    """Your webhooks; for the OPG those of experiments too."""

    queryset = Webhook.objects.none()
    serializer_class = WebhookReader
    filter_backends = ()
    lookup_value_regex = "[0-9]{1,18}"

    def get_queryset(self) -> QuerySet[Webhook]:
        return webhooks_for(self.request.user)

    @extend_schema(request=WebhookWriter, responses={201: WebhookWithSecret})
    def create(self, request: ApiRequest) -> Response:
        """Add one of your own, or, as one of the OPG, of an experiment. Its secret is told now and never again."""
        given = checked_data(WebhookWriter(data=request.data))
        made, secret = add_webhook(by=cast(User, request.user), at=timezone.now(), **given)
        return _secret({**WebhookReader(made).data, "secret": secret}, status.HTTP_201_CREATED)

    @extend_schema(responses={204: None})
    def destroy(self, request: ApiRequest, pk: str) -> Response:
        """Remove it, and what waits for it."""
        remove_webhook(webhook=self.get_object(), by=cast(User, request.user), at=timezone.now())
        return Response(status=status.HTTP_204_NO_CONTENT)

    @extend_schema(request=None, responses=WebhookReader)
    @action(detail=True, methods=["post"])
    def enable(self, request: ApiRequest, pk: str) -> Response:
        """Switch it on again; what waited for it goes out now."""
        enable_webhook(webhook=self.get_object(), by=cast(User, request.user), at=timezone.now())
        return Response(WebhookReader(self.get_object()).data)


class FollowView(APIView):
    """How you follow a request."""

    @extend_schema(operation_id="requests_follow_retrieve", responses=FollowSerializer)
    def get(self, request: ApiRequest, key: str) -> Response:
        """Tell whether you watch it or have muted it; empty: you are told what concerns your roles."""
        return Response({"level": level_of(request.user, self._wanted(request, key))})

    @extend_schema(operation_id="requests_follow_update", request=FollowSerializer, responses=FollowSerializer)
    def put(self, request: ApiRequest, key: str) -> Response:
        """Watch it, mute it, or neither."""
        wanted, given = self._wanted(request, key), checked_data(FollowSerializer(data=request.data))
        follow_request(request=wanted, user=cast(User, request.user), level=given["level"])
        return Response({"level": level_of(request.user, wanted)})

    def _wanted(self, request: ApiRequest, key: str) -> Request:
        return get_object_or_404(Request.objects.visible_to(request.user), key=key)
