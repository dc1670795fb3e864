"""Test calls of webhooks: queued like all calls, tried once, and their result in plain words."""

from collections.abc import Iterable
from datetime import datetime

from django.db import transaction

from apps.accounts.models import User
from apps.core.domain.background import enqueue
from apps.core.domain.events import publish
from apps.core.errors import NotAllowed
from apps.core.http.errors import ConnectionFailed, NameNotResolved, TimedOut
from apps.core.models import Event
from apps.notifications.domain.webhook_posts import LIMIT_SECONDS, WebhookRefused
from apps.notifications.enums import Channel, MessageState
from apps.notifications.models import Message, Webhook

TEST_KIND = "webhook.tested"
#: Newest tests that are looked through for those of a page of webhooks.
_MOST_TESTS = 200
_HINTS = {
    401: "It refused the call: check the secret that it verifies signatures with.",
    403: "It refused the call: check the secret that it verifies signatures with.",
    404: "It has nothing at this path: check the URL.",
    405: "It accepts no POST at this path: check the URL.",
    410: "It has nothing at this path: check the URL.",
}


@transaction.atomic
def queue_test(*, webhook: Webhook, by: User, at: datetime) -> None:
    """Queue a signed test call, unless one waits already.

    It is sent also while other calls wait for a retry. Raises `NotAllowed` if the webhook is
    disabled.
    """
    hook = Webhook.objects.select_for_update(no_key=True, of=("self",)).get(pk=webhook.pk)
    if not hook.enabled:
        raise NotAllowed("A disabled webhook is not called. Enable it first.")
    newest = newest_tests([hook]).get(hook.pk)
    if newest and newest.state == MessageState.WAITING:
        return
    event = publish(kind="webhook.tested", target=hook, by=by, at=at, data={"host": hook.host})
    Message.objects.create(
        channel=Channel.WEBHOOK, webhook=hook, event=event, created_at=at, due_at=at
    )
    enqueue("notifications.call_webhooks")


def newest_tests(hooks: Iterable[Webhook]) -> dict[int, Message]:
    """Return the newest test call of each webhook that was tested, by the key of the webhook."""
    events = Event.objects.filter(
        kind=TEST_KIND,
        target_type=Webhook._meta.label_lower,
        target_id__in=[str(hook.pk) for hook in hooks],
    )
    recent = list(events.order_by("-pk").values_list("pk", flat=True)[:_MOST_TESTS])
    tests: dict[int, Message] = {}
    for message in Message.objects.filter(event__in=recent).order_by("event"):
        if message.webhook_id is not None:
            tests[message.webhook_id] = message
    return tests


def is_test(message: Message) -> bool:
    return message.event is not None and message.event.kind == TEST_KIND


def reason_in_words(error: Exception) -> str:
    """Say why a test failed, and what to check."""
    if isinstance(error, WebhookRefused):
        hint = _HINTS.get(error.status, "")
        if 300 <= error.status < 400:
            hint = "Redirects are not followed: enter the URL that it redirects to."
        elif error.status >= 500:
            hint = "It reports an error of its own: look at its log."
        return f"The receiver answered {error.status}. {hint}".strip()
    if isinstance(error, TimedOut):
        return f"The receiver did not answer within {LIMIT_SECONDS} s."
    if isinstance(error, NameNotResolved):
        return f"The host {error.host} is not known: check the URL."
    if isinstance(error, ConnectionFailed):
        return f"No connection to the receiver. {error}"
    return str(error)
