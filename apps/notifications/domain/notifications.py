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
_WITH_TEXT = frozenset({"request.commented", "request.comment_edited"})
#: Events whose `new` is the state in which someone is to act.
_OF_STATE = frozenset({"request.pass", "request.return", "request.request_changes"})
#: The count beside “Notifications” stops here.
MAX_COUNT = 100


def visible_notifications(user: User | None) -> QuerySet[Notification]:
    """Return the user's notifications that the user may still see."""
    notifications = Notification.objects.filter(user=user)
    scope = scope_of(user)
    if scope.sees_all:
        return notifications
    mine = Q(request__experiment__in=scope.experiments) | Q(hold__experiment__in=scope.experiments)
    mine |= Q(report__experiment__in=scope.experiments)
    if scope.roles:
        mine |= Q(hold__isnull=False, hold__experiment=None)
    if user is not None:
        mine |= Q(failures__in=visible_groups(user))
    notifications = notifications.filter(
        Q(request=None, hold=None, failures=None, incident=None, report=None) | mine
    )
    # A line has no column of its own, and its event says its text.
    lines = LineTemplate.objects.filter(experiment__in=scope.experiments, pk=OuterRef("line"))
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
        if notification.event.kind in _WITH_TEXT
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
    """Return those that are not read, without calls to act that nobody needs to follow any more.

    The request has left the state that it was in, or needs no attention any more.
    """
    in_state = Q(event__kind__in=_OF_STATE) & ~Q(request__state=F("event__new"))
    needs = Exists(Attention.objects.filter(request=OuterRef("request")))
    # A reminder is of a state, or of a kind of attention.
    of_attention = Q(event__data__state__in=AttentionKind.values)
    in_other_state = ~Q(request__state=KeyTextTransform("state", "event__data"))
    reminded = Q(event__kind="request.reminder") & (
        of_attention & ~Q(needs) | ~of_attention & in_other_state
    )
    marked = Q(event__kind__in=EVENTS.values()) & ~Q(needs)
    is_over = Q(group=Group.TURN, request__isnull=False) & (in_state | reminded | marked)
    return notifications.filter(read_at=None).exclude(is_over)


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
    target = target_of(event)
    kind = kind_of_target(target)
    if event.kind == MESSAGE:
        return _notify(event, Recipients(concerned_by_message(event)))
    if kind is None or not kind.events:
        return 0
    about = {kind.column: target} if kind.column else {}
    return _notify(event, kind.recipients(event, target), **about)


def _notify(event: Event, concerned: Recipients, **about: Any) -> int:
    notified = set(Notification.objects.filter(event=event).values_list("user_id", flat=True))
    new = concerned.groups.keys() - notified
    users = User.objects.filter(pk__in=new, is_active=True).order_by("pk")
    group_by_user = {
        user: concerned.groups[user.pk] for user in users.select_related("notification_preferences")
    }
    notify_users(event, group_by_user, **about)
    hooks = Webhook.objects.filter(experiment__in=concerned.experiments, enabled=True)
    _queue_calls([_call(event, hook) for hook in hooks])
    return len(group_by_user)


def notify_users(event: Event, users: Mapping[User, Group], **about: Any) -> None:
    """Create notifications, the mails sent immediately, and the calls of the users' webhooks."""
    rules, quiet = rules_of(users), {user.pk: hours_of(user) for user in users}
    hooks: dict[int | None, list[Webhook]] = {}
    for hook in Webhook.objects.filter(user__in=users, enabled=True):
        hooks.setdefault(hook.user_id, []).append(hook)
    rows, calls = [], []
    for user, group in users.items():
        notification = Notification(user=user, event=event, group=group, at=event.at, **about)
        when = (
            rules[user.pk][Channel.MAIL, group]
            if mail_is_configured() and user.email
            else When.NEVER
        )
        if when == When.DIGEST:
            notification.digest_at = quiet[user.pk].next_digest(event.at)
        elif when == When.NOW:
            due = quiet[user.pk].allowed(event.at)
            notification.message = Message(
                channel=Channel.MAIL, user=user, event=event, created_at=event.at, due_at=due
            )
        rows.append(notification)
        if rules[user.pk][Channel.WEBHOOK, group] == When.NOW:
            due = quiet[user.pk].allowed(event.at)
            calls += [_call(event, hook, due) for hook in hooks.get(user.pk, [])]
    Message.objects.bulk_create(
        notification.message for notification in rows if notification.message
    )
    Notification.objects.bulk_create(rows)
    _queue_calls(calls)


def _call(event: Event, hook: Webhook, due_at: datetime | None = None) -> Message:
    due = due_at or event.at
    return Message(
        channel=Channel.WEBHOOK, webhook=hook, event=event, created_at=event.at, due_at=due
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
