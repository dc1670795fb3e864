"""Admin of notifications: read-only, with an action that resends messages."""

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone

from apps.core.admin import ReadOnlyAdmin, confirmed, register_read_only
from apps.notifications.domain.delivery import retry_messages
from apps.notifications.models import Follow, Message, Notification, Preferences, Rule, Webhook


@admin.action(description="Resend…", permissions=["view"])
@confirmed(
    button="Resend messages",
    effect="Those of these messages that are waiting or were refused are sent again shortly.",
)
def send_again(
    model_admin: ReadOnlyAdmin, request: HttpRequest, queryset: QuerySet[Message]
) -> None:
    count = retry_messages(pks=queryset.values_list("pk", flat=True), at=timezone.now())
    messages.success(request, f"{count} messages will be sent again shortly.")


register_read_only(
    Message,
    "id channel user webhook digest state due_at sent_at attempts last_error",
    search="=user__username",
    filters=["state", "channel", "digest"],
    actions=[send_again],
    list_title="Mails and webhook calls",
)
register_read_only(
    Webhook,
    "id user experiment host enabled failing_since last_error",
    search="=user__username =experiment__key",
    filters=["enabled", "experiment"],
    # The rest of the URL may be a secret of the user.
    fields=[
        "user",
        "experiment",
        "host",
        "enabled",
        "created_at",
        "created_by",
        "failing_since",
        "last_error",
    ],
    readonly_fields=["host"],
)
register_read_only(
    Notification,
    "at user event group read_at digest_at message",
    search="=user__username",
    filters=["group"],
    ordering=["-at", "-id"],
    about="One event that concerns one user, as the portal lists it.",
)
register_read_only(
    Preferences,
    "user digest_hour quiet_from quiet_until",
    search="=user__username",
    filters=["digest_hour"],
    exclude=["feed_name"],
)
register_read_only(
    Rule, "user group channel when", search="=user__username", filters=["group", "channel", "when"]
)
register_read_only(
    Follow, "user request level", search="=user__username request__key", filters=["level"]
)
