"""Messages on their way, to look at and to send again; webhooks and notifications, to look at."""

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone

from apps.core.admin import ReadOnlyAdmin
from apps.notifications.domain.delivery import retry_messages
from apps.notifications.domain.webhook_addresses import host_of
from apps.notifications.models import Follow, Message, Notification, Preferences, Rule, Webhook


@admin.register(Message)
class MessageAdmin(ReadOnlyAdmin):
    list_display = [
        "id",
        "channel",
        "user",
        "webhook",
        "digest",
        "state",
        "due_at",
        "sent_at",
        "attempts",
        "last_error",
    ]
    list_filter = ["state", "channel", "digest"]
    search_fields = ["=user__username"]
    actions = ["send_again"]

    @admin.action(description="Send again what is refused or waits", permissions=["view"])
    def send_again(self, request: HttpRequest, queryset: QuerySet[Message]) -> None:
        count = retry_messages(pks=queryset.values_list("pk", flat=True), at=timezone.now())
        messages.success(request, f"{count} will be tried again in a moment.")


@admin.register(Webhook)
class WebhookAdmin(ReadOnlyAdmin):
    list_display = ["id", "user", "experiment", "host", "enabled", "failing_since", "last_error"]
    list_filter = ["enabled", "experiment"]
    search_fields = ["=user__username", "=experiment__key"]
    fields = ["user", "experiment", "host", "enabled", "created_at", "created_by", "failing_since", "last_error"]
    readonly_fields = ["host"]

    @admin.display(description="host")
    def host(self, webhook: Webhook) -> str:
        """The rest of the address may be a secret of the person's."""
        return host_of(webhook.url)


@admin.register(Notification)
class NotificationAdmin(ReadOnlyAdmin):
    list_display = ["at", "user", "event", "group", "read_at", "digest_at", "message"]
    list_filter = ["group"]
    search_fields = ["=user__username"]
    ordering = ["-at", "-id"]


@admin.register(Preferences)
class PreferencesAdmin(ReadOnlyAdmin):
    list_display = ["user", "digest_hour", "quiet_from", "quiet_until"]
    list_filter = ["digest_hour"]
    search_fields = ["=user__username"]
    exclude = ["feed_name"]


@admin.register(Rule)
class RuleAdmin(ReadOnlyAdmin):
    list_display = ["user", "group", "channel", "when"]
    list_filter = ["group", "channel", "when"]
    search_fields = ["=user__username"]


@admin.register(Follow)
class FollowAdmin(ReadOnlyAdmin):
    list_display = ["user", "request", "level"]
    list_filter = ["level"]
    search_fields = ["=user__username", "request__key"]
