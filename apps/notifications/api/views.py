"""Notifications, preferences, feeds, webhooks and followed requests in the API."""

from typing import Any

from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import mixins, status
from rest_framework.decorators import action
from rest_framework.response import Response
from rest_framework.viewsets import ReadOnlyModelViewSet

from apps.accounts.api import ApiRequest, ApiView, ApiViewSet, command
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
from apps.notifications.domain.atom_feeds import (
    addresses_of,
    make_feed_address,
    revoke_feed_address,
)
from apps.notifications.domain.notifications import (
    mark_read,
    select_unread,
    visible_notifications,
    with_texts,
)
from apps.notifications.domain.preferences import (
    follow_request,
    level_of,
    preferences_of,
    save_preferences,
)
from apps.notifications.domain.webhooks import (
    add_webhook,
    enable_webhook,
    remove_webhook,
    renew_secret,
    webhooks_for,
)
from apps.notifications.enums import When
from apps.notifications.models import Notification, Preferences, Webhook
from apps.production.models import Request


def _secret(data: Any, code: int = status.HTTP_200_OK) -> Response:
    """Respond with a secret, which no cache may store."""
    return Response(data, status=code, headers={"Cache-Control": "no-store"})


@extend_schema(
    parameters=[OpenApiParameter("unread", bool, description="Only unread notifications.")]
)
class NotificationViewSet(mixins.ListModelMixin, ApiViewSet[Notification]):
    """Your notifications, newest first."""

    queryset = Notification.objects.none()
    serializer_class: Any = NotificationReader

    def get_queryset(self) -> QuerySet[Notification]:
        rows = visible_notifications(self.request.user).select_related("event", "request")
        only_unread = self.request.query_params.get("unread", "").lower() in {"1", "true"}
        return select_unread(rows) if only_unread else rows

    def paginate_queryset(self, queryset: Any) -> Any:
        return with_texts(super().paginate_queryset(queryset) or [])

    @extend_schema(
        request=ReadWriter,
        parameters=[OpenApiParameter("unread", bool, exclude=True)],
        responses={
            200: OpenApiResponse(response=ReadWriter, description="`read`: how many were unread.")
        },
    )
    @action(detail=False, methods=["post"], pagination_class=None)
    def read(self, request: ApiRequest) -> Response:
        """Mark all notifications up to the ID `until` as read,
        or only the one with the ID `only`.
        """
        body = checked_data(ReadWriter(data=request.data))
        until = body["until"] if body["until"] is not None else body["only"]
        if until is None:
            raise InvalidFields(
                {
                    "until": [
                        (
                            "Enter the ID of the newest notification that you have seen, or one "
                            "ID as `only`."
                        )
                    ]
                }
            )
        only = None if body["only"] is None else [body["only"]]
        count = mark_read(user=request.user, at=timezone.now(), until=until, only=only)
        return Response({"until": body["until"], "only": body["only"], "read": count})


class PreferencesView(ApiView):
    """Your notification preferences."""

    @extend_schema(operation_id="notification_preferences_retrieve", responses=PreferencesReader)
    def get(self, request: ApiRequest) -> Response:
        """Return your notification preferences."""
        user = User.objects.select_related("notification_preferences").get(pk=request.user.pk)
        return Response(PreferencesReader(preferences_of(user)).data)

    @extend_schema(
        operation_id="notification_preferences_update",
        request=PreferencesWriter,
        responses=PreferencesReader,
    )
    def put(self, request: ApiRequest) -> Response:
        """Set your notification preferences; omitted groups return to their defaults."""
        body = checked_data(PreferencesWriter(data=request.data))
        rules = {(rule["channel"], rule["group"]): When(rule["when"]) for rule in body["rules"]}
        save_preferences(user=request.user, **{**body, "rules": rules})
        return self.get(request)


class FeedsView(ApiView):
    """The secret URLs of your Atom feeds."""

    @extend_schema(operation_id="feed_addresses_list", responses=FeedReader(many=True))
    def get(self, request: ApiRequest, *, code: int = status.HTTP_200_OK) -> Response:
        """List the URLs of your feeds; empty until you create them."""
        preferences = Preferences.objects.select_related("user").filter(user=request.user).first()
        rows = [
            {"of": name, "address": address} for name, address in addresses_of(preferences).items()
        ]
        return _secret(FeedReader(rows, many=True).data, code)

    @extend_schema(
        operation_id="feed_addresses_create", request=None, responses={201: FeedReader(many=True)}
    )
    def post(self, request: ApiRequest) -> Response:
        """Create new URLs for your feeds; the previous ones stop working."""
        make_feed_address(user=request.user, by=request.user, at=timezone.now())
        return self.get(request, code=status.HTTP_201_CREATED)

    @extend_schema(operation_id="feed_addresses_destroy", responses={204: None})
    def delete(self, request: ApiRequest) -> Response:
        """Revoke the URLs of your feeds."""
        revoke_feed_address(user=request.user, by=request.user, at=timezone.now())
        return Response(status=status.HTTP_204_NO_CONTENT)


class WebhookViewSet(Guarded, ReadOnlyModelViewSet[Webhook], ApiViewSet[Webhook]):
    """Your webhooks; for the OPG also those of experiments."""

    queryset = Webhook.objects.none()
    serializer_class = WebhookReader
    lookup_value_regex = "[0-9]{1,18}"

    def get_queryset(self) -> QuerySet[Webhook]:
        return webhooks_for(self.request.user)

    @extend_schema(request=WebhookWriter, responses={201: WebhookWithSecret})
    def create(self, request: ApiRequest) -> Response:
        """Add a webhook of your own, or as the OPG one of an experiment.

        Its secret is shown only in this response.
        """
        return _secret(
            WebhookWithSecret(add_webhook(**self.domain_arguments(WebhookWriter))).data,
            status.HTTP_201_CREATED,
        )

    @command(code=204)
    def destroy(self, webhook: Webhook, **fields: Any) -> None:
        """Remove a webhook and its waiting calls."""
        remove_webhook(webhook=webhook, **fields)

    @command(reader=WebhookReader)
    def enable(self, webhook: Webhook, **fields: Any) -> Any:
        """Enable the webhook again; its waiting calls are sent now."""
        enable_webhook(webhook=webhook, **fields)
        return self.get_object()

    @extend_schema(request=None, responses=WebhookWithSecret)
    @action(detail=True, methods=["post"], url_path="new-secret")
    def new_secret(self, request: ApiRequest, **_: str) -> Response:
        """Make a new secret, which is shown only in this response. It signs all further calls."""
        webhook = renew_secret(webhook=self.get_object(), by=request.user, at=timezone.now())
        return _secret(WebhookWithSecret(webhook).data)


class FollowView(ApiView):
    """How you follow a request."""

    @extend_schema(operation_id="requests_follow_retrieve", responses=FollowSerializer)
    def get(self, request: ApiRequest, key: str) -> Response:
        """Return whether you watch or muted the request; empty: the default of your roles."""
        production_request = get_object_or_404(Request.objects.visible_to(request.user), key=key)
        return Response({"level": level_of(request.user, production_request)})

    @extend_schema(
        operation_id="requests_follow_update", request=FollowSerializer, responses=FollowSerializer
    )
    def put(self, request: ApiRequest, key: str) -> Response:
        """Watch or mute the request; empty returns to the default of your roles."""
        production_request = get_object_or_404(Request.objects.visible_to(request.user), key=key)
        body = checked_data(FollowSerializer(data=request.data))
        follow_request(request=production_request, user=request.user, level=body["level"])
        return Response({"level": level_of(request.user, production_request)})
