"""Create notifications of events, list those a user may see, and mark them as read."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db import models, transaction
from django.db.models import Exists, F, IntegerField, OuterRef, Q, QuerySet
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast

from apps.accounts.models import User
from apps.accounts.permissions import scope_of
from apps.core.domain.events import target_of
from apps.core.enums import Group
from apps.core.models import Event
from apps.diagnosis.domain.groups.triage import visible_groups
from apps.notifications.domain.mail import mail_is_configured
from apps.notifications.domain.preferences import hours_of, rules_of
from apps.notifications.domain.quiet_hours import Hours
from apps.notifications.domain.recipients import concerned_by_message
from apps.notifications.domain.targets import Recipients, kind_of_target
from apps.notifications.enums import Channel, When
from apps.notifications.models import Message, Notification, Webhook
from apps.production.domain.attention import EVENTS
from apps.production.enums import AttentionKind
from apps.production.models import Attention, Comment
from apps.search.models import LineTemplate

#: The kind of messages to the liaisons of an experiment, whatever they are about.
MESSAGE = "experiment.notified"
#: Events about the text of a comment.
_COMMENT_EVENTS = frozenset({"request.commented", "request.comment_edited"})
#: Events that move a request to a state in which someone has to act: their `new`.
_MOVES_TO_ACT_ON = frozenset({"request.pass", "request.return", "request.request_changes"})
#: The count beside “Notifications” stops here.
MAX_COUNT = 100


def visible_notifications(user: User | None) -> QuerySet[Notification]:
    """Return the user's notifications that the user may still see."""
    notifications = Notification.objects.filter(user=user)
    scope = scope_of(user)
    if scope.sees_all:
        return notifications
    mine = Q(request__experiment__in=scope.experiment_keys)
    mine |= Q(hold__experiment__in=scope.experiment_keys)
    mine |= Q(report__experiment__in=scope.experiment_keys)
    if scope.roles:
        mine |= Q(hold__isnull=False, hold__experiment=None)
    if user is not None:
        mine |= Q(failures__in=visible_groups(user))
    notifications = notifications.filter(
        Q(request=None, hold=None, failures=None, incident=None, report=None) | mine
    )
    # A line has no column of its own, and its event says its text.
    lines = LineTemplate.objects.filter(experiment__in=scope.experiment_keys, pk=OuterRef("line"))
    is_line = Q(event__target_type=LineTemplate._meta.label_lower)
    line = models.Case(models.When(is_line, then=Cast("event__target_id", IntegerField())))
    return notifications.alias(line=line).filter(Q(line=None) | Exists(lines))


def with_texts(notifications: Sequence[Notification]) -> Sequence[Notification]:
    """Set `text` of each row, in one query.

    It is the reason of the event, or the current text of the comment; empty if that was withdrawn.
    """
    comments = {
        notification.pk: notification.event.data.get("comment")
        for notification in notifications
        if notification.event.kind in _COMMENT_EVENTS
    }
    texts: dict[int, str] = {}
    if comments:
        texts = dict(Comment.objects.filter(pk__in=comments.values()).values_list("pk", "text"))
    for notification in notifications:
        notification.text = notification.event.reason or texts.get(
            comments.get(notification.pk) or 0, ""
        )
    return notifications


def select_unread(notifications: QuerySet[Notification]) -> QuerySet[Notification]:
    """Return the notifications that are not read, without outdated calls to act on a request.

    A call is outdated if the request has left the state that it is about, or needs no attention
    any more.
    """
    needs_attention = Exists(Attention.objects.filter(request=OuterRef("request")))
    has_moved_on = Q(event__kind__in=_MOVES_TO_ACT_ON) & ~Q(request__state=F("event__new"))
    is_attended = Q(event__kind__in=EVENTS.values()) & ~Q(needs_attention)

    # A reminder is of a state, or of a kind of attention.
    is_of_attention = Q(event__data__state__in=AttentionKind.values)
    is_of_other_state = ~Q(request__state=KeyTextTransform("state", "event__data"))
    is_late_reminder = Q(event__kind="request.reminder") & (
        is_of_attention & ~Q(needs_attention) | ~is_of_attention & is_of_other_state
    )
    is_call = Q(group=Group.TURN, request__isnull=False)
    is_outdated = is_call & (has_moved_on | is_late_reminder | is_attended)
    return notifications.filter(read_at=None).exclude(is_outdated)


def unread_count(user: User) -> int:
    """Count unread notifications, up to `MAX_COUNT`."""
    # Every page asks, and most users have read all. To build the query of those that they may
    # still see takes 4 ms for a liaison, a third of a short page; this check takes 0.3 ms.
    if not Notification.objects.filter(user=user, read_at=None).exists():
        return 0
    return select_unread(visible_notifications(user))[:MAX_COUNT].count()


@transaction.atomic
def notify(*, event: Event) -> int:
    """Create a notification for each user whom an event concerns, with its mails and calls.

    Return the number of users notified: each once, however many requests a hold is over.
    Idempotent; does nothing if what it is about is gone.
    """
    if event.kind == MESSAGE:
        return _notify(event, Recipients(concerned_by_message(event)))
    target = target_of(event)
    kind = kind_of_target(target)
    if kind is None or not kind.events:
        return 0
    columns = {kind.column: target} if kind.column else {}
    return _notify(event, kind.recipients(event, target), **columns)


def _notify(event: Event, recipients: Recipients, **columns: Any) -> int:
    notified = set(Notification.objects.filter(event=event).values_list("user_id", flat=True))
    new_pks = recipients.groups.keys() - notified
    users = User.objects.filter(pk__in=new_pks, is_active=True).order_by("pk")
    group_by_user = {
        user: recipients.groups[user.pk]
        for user in users.select_related("notification_preferences")
    }
    notify_users(event, group_by_user, **columns)
    webhooks = Webhook.objects.filter(experiment__in=recipients.experiment_pks, enabled=True)
    _queue_calls([_call(event, webhook, event.at) for webhook in webhooks])
    return len(group_by_user)


def notify_users(event: Event, group_by_user: Mapping[User, Group], **columns: Any) -> None:
    """Create notifications, the mails sent immediately, and the calls of the users' webhooks.

    `columns` are fields of `Notification`, such as the request that the event is about.
    """
    rules = rules_of(group_by_user)
    webhooks: dict[int | None, list[Webhook]] = {}
    for webhook in Webhook.objects.filter(user__in=group_by_user, enabled=True):
        webhooks.setdefault(webhook.user_id, []).append(webhook)

    notifications = []
    calls = []
    for user, group in group_by_user.items():
        hours = hours_of(user)
        notification = Notification(user=user, event=event, group=group, at=event.at, **columns)
        if mail_is_configured() and user.email:
            _plan_mail(notification, rules[user.pk][Channel.MAIL, group], hours)
        notifications.append(notification)
        if rules[user.pk][Channel.WEBHOOK, group] == When.NOW:
            due_at = hours.allowed(event.at)
            calls += [_call(event, webhook, due_at) for webhook in webhooks.get(user.pk, [])]

    Message.objects.bulk_create(
        notification.message for notification in notifications if notification.message
    )
    Notification.objects.bulk_create(notifications)
    _queue_calls(calls)


def _plan_mail(notification: Notification, when: When, hours: Hours) -> None:
    """Give a notification its mail or the time of its digest, unsaved."""
    event = notification.event
    if when == When.DIGEST:
        notification.digest_at = hours.next_digest(event.at)
    elif when == When.NOW:
        notification.message = Message(
            channel=Channel.MAIL,
            user=notification.user,
            event=event,
            created_at=event.at,
            due_at=hours.allowed(event.at),
        )


def _call(event: Event, webhook: Webhook, due_at: datetime) -> Message:
    return Message(
        channel=Channel.WEBHOOK,
        webhook=webhook,
        event=event,
        created_at=event.at,
        due_at=due_at,
    )


def _queue_calls(calls: Iterable[Message]) -> None:
    """Queue calls of webhooks, at most one per webhook and event."""
    Message.objects.bulk_create(calls, ignore_conflicts=True)


@transaction.atomic
def mark_read(*, user: User, at: datetime, until: int, only: Collection[int] | None = None) -> int:
    """Mark some notifications, or all up to `until`, as read; return how many were unread."""
    notifications = Notification.objects.filter(user=user, read_at=None, pk__lte=until)
    if only is not None:
        notifications = notifications.filter(pk__in=only)
    return notifications.update(read_at=at)
