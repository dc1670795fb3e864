"""Serializers of notifications, preferences, feeds and webhooks."""

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from apps.accounts.models import Experiment
from apps.core.domain.event_kinds import what_happened
from apps.core.enums import Group
from apps.notifications.domain.preferences import rules_of
from apps.notifications.domain.webhook_addresses import MAX_LENGTH
from apps.notifications.enums import Channel, Level, When
from apps.notifications.models import Notification, Preferences, Webhook

_ID: dict[str, Any] = {"min_value": 0, "max_value": 2**63 - 1}


class NotificationReader(serializers.ModelSerializer[Notification]):
    kind = serializers.CharField(source="event.kind")
    about = serializers.CharField(source="event.target_label")
    words = serializers.SerializerMethodField()
    request = serializers.CharField(source="request.key", allow_null=True, default=None)
    actor = serializers.CharField(source="event.actor")
    reason = serializers.CharField(source="event.reason")
    text = serializers.CharField(
        help_text="The reason, or the text of the comment; empty if it was withdrawn."
    )

    class Meta:
        model = Notification
        fields = [
            "id",
            "kind",
            "about",
            "words",
            "group",
            "request",
            "actor",
            "reason",
            "text",
            "at",
            "read_at",
        ]
        read_only_fields = fields

    def get_words(self, notification: Notification) -> str:
        return what_happened(notification.event)


class ReadWriter(serializers.Serializer[Any]):
    """Which notifications to mark as read."""

    until = serializers.IntegerField(required=False, allow_null=True, default=None, **_ID)
    only = serializers.IntegerField(required=False, allow_null=True, default=None, **_ID)
    read = serializers.IntegerField(read_only=True)


class RuleSerializer(serializers.Serializer[Any]):
    """When one channel notifies you of one group of events."""

    channel = serializers.ChoiceField(choices=Channel.choices)
    group = serializers.ChoiceField(choices=Group.choices)
    when = serializers.ChoiceField(choices=When.choices)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Only mail has a digest."""
        if attrs["channel"] == Channel.WEBHOOK and attrs["when"] == When.DIGEST:
            raise serializers.ValidationError(
                {"when": "Webhooks have no digest. Choose now or never."}
            )
        return attrs


class PreferencesWriter(serializers.Serializer[Any]):
    digest_hour = serializers.IntegerField(min_value=0, max_value=23)
    quiet_from = serializers.TimeField(required=False, allow_null=True, default=None)
    quiet_until = serializers.TimeField(required=False, allow_null=True, default=None)
    rules = RuleSerializer(many=True, required=False, default=list)


class PreferencesReader(serializers.ModelSerializer[Preferences]):
    rules = serializers.SerializerMethodField()

    class Meta:
        model = Preferences
        fields = ["digest_hour", "quiet_from", "quiet_until", "rules"]
        read_only_fields = fields

    @extend_schema_field(RuleSerializer(many=True))
    def get_rules(self, preferences: Preferences) -> list[dict[str, str]]:
        rules = rules_of([preferences.user])[preferences.user.pk]
        return [
            {"channel": channel, "group": group, "when": when}
            for (channel, group), when in rules.items()
        ]


class FeedReader(serializers.Serializer[Any]):
    """The content of a feed, and its URL: anyone who has the URL can read it."""

    of = serializers.CharField()
    address = serializers.CharField()


class WebhookReader(serializers.ModelSerializer[Webhook]):
    """A webhook; only the host of its URL is shown, since the rest may be secret."""

    experiment = serializers.CharField(source="experiment.key", allow_null=True, default=None)

    class Meta:
        model = Webhook
        fields = [
            "id",
            "host",
            "experiment",
            "enabled",
            "created_at",
            "failing_since",
            "failures",
            "last_error",
        ]
        read_only_fields = fields


class WebhookWithSecret(WebhookReader):
    """A new webhook with the secret that signs its calls."""

    secret = serializers.CharField()

    class Meta(WebhookReader.Meta):
        fields = [*WebhookReader.Meta.fields, "secret"]
        read_only_fields = fields


class WebhookWriter(serializers.Serializer[Any]):
    url = serializers.CharField(max_length=MAX_LENGTH)
    experiment = serializers.SlugRelatedField(
        slug_field="key",
        queryset=Experiment.objects.all(),
        required=False,
        allow_null=True,
        default=None,
    )


class FollowSerializer(serializers.Serializer[Any]):
    level = serializers.ChoiceField(choices=Level.choices, allow_blank=True)
