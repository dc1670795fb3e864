"""Deliver messages that are due: combine digests, send mail, call webhooks, and retry what fails.

Each message is claimed, then held while it is sent, and marked in the transaction that holds it. A
process killed between the receiver's answer and the commit sends that one message again, with the
same Message-ID or delivery number.
"""

import json
import logging
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import transaction
from django.db.models import Q, QuerySet

from apps.accounts.models import User
from apps.accounts.permissions import is_opg
from apps.core.domain.event_kinds import headline
from apps.core.domain.events import target_of
from apps.core.domain.hidden_characters import mark_hidden
from apps.core.domain.work import BackOff, Queue, describe
from apps.core.http.errors import HttpError
from apps.core.models import Event
from apps.notifications.domain import webhook_posts
from apps.notifications.domain.mail import MailRefused, MailServer, compose
from apps.notifications.domain.notifications import visible_notifications, with_texts
from apps.notifications.domain.preferences import hours_of
from apps.notifications.domain.targets import TargetKind, kind_of_target, may_see
from apps.notifications.domain.webhook_addresses import BadAddress
from apps.notifications.domain.webhook_tests import TEST_KIND, is_test, reason_in_words
from apps.notifications.domain.webhooks import disable_webhook
from apps.notifications.enums import Channel, MessageState
from apps.notifications.models import Message, Notification, Webhook
from apps.production.models import Request

log = logging.getLogger(__name__)

BACK_OFF = BackOff((10, 30, 60, 120, 300, 600))
MAIL = Queue(
    name="mail",
    title="E-mail",
    model=Message,
    unfinished_rows=Q(channel=Channel.MAIL, state=MessageState.WAITING),
    back_off=BACK_OFF,
)
CALLS = Queue(
    name="webhooks",
    title="Calls of webhooks",
    model=Message,
    unfinished_rows=Q(channel=Channel.WEBHOOK, state=MessageState.WAITING, webhook__enabled=True),
    back_off=BACK_OFF,
)

#: A message refused this often is set aside; admins see it and can resend it.
MAX_REFUSALS = 24
REFUSED_WAIT = timedelta(hours=1)
#: How long finished messages, and notifications, are kept.
KEEP_MESSAGES = timedelta(days=90)
KEEP_NOTIFICATIONS = timedelta(days=180)


def form_digests(*, at: datetime) -> int:
    """Combine notifications whose digest is due into one mail for each user.

    Return the number of mails.
    """
    waiting = Notification.objects.filter(digest_at__lte=at)
    made = 0
    for user_id in waiting.order_by("user").values_list("user", flat=True).distinct()[:200]:
        with transaction.atomic():
            rows = waiting.filter(user=user_id).select_for_update(skip_locked=True)
            pks = list(rows.values_list("pk", flat=True))
            if pks:
                mail = Message.objects.create(
                    channel=Channel.MAIL, user_id=user_id, digest=True, created_at=at, due_at=at
                )
                Notification.objects.filter(pk__in=pks).update(message=mail, digest_at=None)
                made += 1
    return made


def due_mail(at: datetime) -> QuerySet[Message]:
    return MAIL.due(at).order_by("due_at", "pk")


def due_calls(at: datetime) -> QuerySet[Message]:
    """Return the due calls of enabled webhooks that do not wait for a retry, and due tests."""
    ready = Q(webhook__retry_at=None) | Q(webhook__retry_at__lte=at) | Q(event__kind=TEST_KIND)
    return CALLS.due(at).filter(ready).order_by("due_at", "pk")


def send_mail(*, message_id: int, server: MailServer, at: datetime) -> bool:
    """Send one mail if it is still due and visible; return False if the server does not answer."""
    mail = due_mail(at).filter(pk=message_id)
    for message in MAIL.claim(mail.select_related("user__notification_preferences"), at=at):
        try:
            with transaction.atomic():
                if MAIL.hold([message]):
                    _send_mail(message, server, at)
        except MailRefused as error:
            _mail_failed(message, str(error), at, refused=True)
        except OSError as error:
            _mail_failed(message, describe(error), at)
            return False
        except Exception as error:  # one mail that cannot be written must not delay the others
            log.exception("mail %s failed", message_id)
            _mail_failed(message, describe(error), at, refused=True)
    return True


def _send_mail(message: Message, server: MailServer, at: datetime) -> None:
    user = message.user
    rows = (
        visible_notifications(user)
        .filter(message=message)
        .select_related("event", "request")
        .order_by("pk")
    )
    shown = list(rows) if user is not None and user.is_active else []
    if user is None or not shown or not _has_address(user):
        _settle(
            message, MessageState.DROPPED, at, "No longer visible to the user, or no mail address."
        )
    elif not _postpone(MAIL, message, user, at):
        server.send(compose(message, with_texts(shown)))
        _settle(message, MessageState.SENT, at)


def _has_address(user: User) -> bool:
    try:
        validate_email(user.email)
    except ValidationError:
        return False
    return True


def _postpone(queue: Queue[Message], message: Message, user: User, at: datetime) -> bool:
    """Postpone a message to the end of the user's quiet hours; return whether it was."""
    later = hours_of(user).allowed(at)
    if later > at:
        queue.release([message], due_at=later)
    return later > at


def call_webhook(*, message_id: int, at: datetime) -> None:
    """Call one webhook if the call is still due and visible.

    A failure delays all calls of the webhook.
    """
    call = due_calls(at).filter(pk=message_id)
    related = ("webhook__user__notification_preferences", "event")
    for message in CALLS.claim(call.select_related(*related), at=at):
        try:
            with transaction.atomic():
                if CALLS.hold([message]):
                    _call(message, at)
        except webhook_posts.WebhookRefused as error:
            _webhook_failed(message, error, at, refused=True)
        except (BadAddress, HttpError) as error:
            _webhook_failed(message, error, at)
        except Exception as error:  # as above
            log.exception("call %s failed", message_id)
            _webhook_failed(message, error, at, refused=True)


def _call(message: Message, at: datetime) -> None:
    hook = message.webhook
    event = message.event
    if hook is None or event is None:
        raise TypeError("a call needs a webhook and an event")
    target = target_of(event)
    if hook.user is not None:
        if not hook.user.is_active or not may_see(hook.user, target):
            _settle(message, MessageState.DROPPED, at, "No longer visible to the user.")
            return
        if not is_test(message) and _postpone(CALLS, message, hook.user, at):
            return
    elif not is_opg(hook.created_by):
        reason = (
            f"{hook.created_by}, who added it, is not in the OPG any more. Enable it to take it "
            "over."
        )
        CALLS.release([message], due_at=at)
        disable_webhook(webhook=hook, by="opsportal", at=at, reason=reason)
        return
    status = webhook_posts.post_signed(
        url=hook.url,
        secret=hook.secret,
        body=json.dumps(payload(event, target)).encode(),
        timestamp=int(at.timestamp()),
        delivery=str(message.pk),
    )
    answer = f"The receiver answered {status}." if is_test(message) else ""
    _settle(message, MessageState.SENT, at, answer)
    Webhook.objects.filter(pk=hook.pk).update(
        failing_since=None, retry_at=None, failures=0, last_error=""
    )


def payload(event: Event, target: object) -> dict[str, object]:
    """Return the body of a webhook's call for an event."""
    kind = kind_of_target(target) or TargetKind()
    request = target if isinstance(target, Request) else None
    return {
        "id": event.pk,
        "kind": event.kind,
        "at": event.at.isoformat(),
        "request": request.key if request else None,
        "url": kind.url(target),
        "text": mark_hidden(headline(event)),
        "actor": mark_hidden(event.actor),
        "old": mark_hidden(event.old),
        "new": mark_hidden(event.new),
        "reason": mark_hidden(event.reason),
    }


def _settle(message: Message, state: MessageState, at: datetime, why: str = "") -> None:
    message.state = state
    message.last_error = why
    message.sent_at = at if state == MessageState.SENT else None
    message.save(update_fields=["state", "last_error", "sent_at"])


def _mail_failed(message: Message, why: str, at: datetime, *, refused: bool = False) -> None:
    """Record why a mail was not sent; what the server refused is not sent again soon."""
    wait = REFUSED_WAIT if refused else None
    MAIL.fail(message, why, at=at, wait=wait, **_refusals(message, refused=refused))


def _refusals(message: Message, *, refused: bool) -> dict[str, Any]:
    """Return the changes of a message that failed; one refused too often is set aside."""
    changes: dict[str, Any] = {"refusals": message.refusals + refused}
    if changes["refusals"] >= MAX_REFUSALS:
        changes["state"] = MessageState.REFUSED
    return changes


@transaction.atomic
def _webhook_failed(
    message: Message, error: Exception, at: datetime, *, refused: bool = False
) -> None:
    """Delay the next call of a webhook; disable it if it has failed for days.

    A test is not repeated, and delays nothing.
    """
    if is_test(message):
        CALLS.fail(message, reason_in_words(error), at=at, state=MessageState.DROPPED)
        return
    is_known = isinstance(error, webhook_posts.WebhookRefused | BadAddress | HttpError)
    why = str(error) if is_known else describe(error)
    if not CALLS.fail(message, why, at=at, **_refusals(message, refused=refused)):
        return
    hook = Webhook.objects.select_for_update().get(messages=message)
    hook.failures += 1
    hook.failing_since = hook.failing_since or at
    hook.retry_at = at + BACK_OFF.after(hook.failures)
    hook.last_error = why[:2000]
    hook.save(update_fields=["failures", "failing_since", "retry_at", "last_error"])
    if at - hook.failing_since >= timedelta(days=settings.WEBHOOK_GIVE_UP_DAYS):
        disable_webhook(
            webhook=hook,
            by="opsportal",
            at=at,
            reason=f"{hook.host} failed for days: {hook.last_error}",
        )


def drop_old(*, at: datetime) -> int:
    """Delete old notifications and finished messages; those still waiting stay."""
    done = Message.objects.filter(created_at__lt=at - KEEP_MESSAGES).exclude(
        state=MessageState.WAITING
    )
    seen = Notification.objects.filter(at__lt=at - KEEP_NOTIFICATIONS, digest_at=None)
    seen = seen.filter(Q(message=None) | ~Q(message__state=MessageState.WAITING))
    return _delete(seen) + _delete(done)


def _delete(rows: QuerySet[Any]) -> int:
    """Delete rows in batches; return how many."""
    total = 0
    batch = rows.model._default_manager.filter(pk__in=rows.order_by("pk").values("pk")[:10_000])
    while True:
        deleted, _ = batch.all().delete()
        if not deleted:
            return total
        total += deleted


@transaction.atomic
def retry_messages(*, pks: Iterable[int], at: datetime) -> int:
    """Resend messages that are refused or waiting, at once; return how many."""
    messages = Message.objects.filter(
        pk__in=list(pks), state__in=[MessageState.WAITING, MessageState.REFUSED]
    )
    return messages.update(state=MessageState.WAITING, due_at=at, refusals=0)
