"""Create notifications of events, list those a user may see, and mark them as read."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from django.db import transaction
from django.db.models import Q, QuerySet

from apps.accounts.models import User
from apps.accounts.permissions import scope_of
from apps.core.domain.events import target_of
from apps.core.enums import Group
from apps.core.models import Event
from apps.diagnosis.domain.groups.triage import visible_groups
from apps.diagnosis.models import ExperimentPack, FailureGroup, KnownError, KnownErrorChange
from apps.notifications.domain.mail import mail_is_configured
from apps.notifications.domain.preferences import hours_of, rules_of
from apps.notifications.domain.recipients import (
    concerned_by,
    concerned_by_catalogue,
    concerned_by_failures,
    concerned_by_hold,
    concerned_by_message,
    concerned_by_proposal,
)
from apps.notifications.enums import Channel, When
from apps.notifications.models import Message, Notification, Webhook
from apps.production.models import Comment, Hold, Request
from apps.progress.models import WeeklyReport
from apps.recovery.models import RecoveryRule
from apps.statusboard.models import Incident

#: Events about the text of a comment.
_WITH_TEXT = frozenset({"request.commented", "request.comment_edited"})
#: What a notification is about.
Target = Request | Hold | FailureGroup | Incident | WeeklyReport
#: The count beside “Notifications” stops here.
MAX_COUNT = 100


def visible_notifications(user: User | None) -> QuerySet[Notification]:
    """Return the user's notifications that the user may still see."""
    rows = Notification.objects.filter(user=user)
    scope = scope_of(user)
    if scope.sees_all:
        return rows
    mine = Q(request__experiment__in=scope.experiments) | Q(hold__experiment__in=scope.experiments)
    mine |= Q(report__experiment__in=scope.experiments)
    if scope.roles:
        mine |= Q(hold__isnull=False, hold__experiment=None)
    if user is not None:
        mine |= Q(failures__in=visible_groups(user))
    return rows.filter(Q(request=None, hold=None, failures=None, incident=None, report=None) | mine)


def with_texts(rows: Sequence[Notification]) -> Sequence[Notification]:
    """Set `text` of each row, in one query.

    It is the reason of the event, or the current text of the comment; empty if that was withdrawn.
    """
    comments = {
        row.pk: row.event.data.get("comment") for row in rows if row.event.kind in _WITH_TEXT
    }
    texts: dict[int, str] = {}
    if comments:
        texts = dict(Comment.objects.filter(pk__in=comments.values()).values_list("pk", "text"))
    for row in rows:
        row.text = row.event.reason or texts.get(comments.get(row.pk) or 0, "")
    return rows


def unread_count(user: User) -> int:
    """Count unread notifications, up to `MAX_COUNT`."""
    return visible_notifications(user).filter(read_at=None)[:MAX_COUNT].count()


@transaction.atomic
def notify(*, event: Event) -> int:
    """Create a notification for each user whom an event concerns, with its mails and calls.

    Return the number of users notified: each once, however many requests a hold is over.
    Idempotent; does nothing if what it is about is gone.
    """
    target = target_of(event)
    if isinstance(target, Request):
        return _notify(event, concerned_by(event, target), {target.experiment_id}, request=target)
    if isinstance(target, Hold):
        groups, experiments = concerned_by_hold(event, target)
        return _notify(event, groups, experiments, hold=target)
    if event.kind == "experiment.notified":
        return _notify(event, concerned_by_message(event), ())
    if isinstance(target, KnownError | KnownErrorChange | ExperimentPack | RecoveryRule):
        return _notify(event, _concerned_by_catalogue(event, target), ())
    columns = {FailureGroup: "failures", Incident: "incident", WeeklyReport: "report"}
    if type(target) not in columns:
        return 0
    return _notify(
        event, concerned_by_failures(event, target), (), **{columns[type(target)]: target}
    )


def _concerned_by_catalogue(
    event: Event, target: KnownError | KnownErrorChange | ExperimentPack | RecoveryRule
) -> dict[int, Group]:
    if isinstance(target, KnownError | RecoveryRule):
        return concerned_by_catalogue(event)
    return concerned_by_proposal(event, target)


def _notify(
    event: Event, groups: Mapping[int, Group], experiments: Iterable[int], **about: Target
) -> int:
    notified = set(Notification.objects.filter(event=event).values_list("user_id", flat=True))
    users = User.objects.filter(pk__in=groups.keys() - notified, is_active=True).order_by("pk")
    recipients = {
        user: groups[user.pk] for user in users.select_related("notification_preferences")
    }
    notify_users(event, recipients, **about)
    _queue_calls(
        [
            _call(event, hook)
            for hook in Webhook.objects.filter(experiment__in=experiments, enabled=True)
        ]
    )
    return len(recipients)


def notify_users(event: Event, users: Mapping[User, Group], **about: Target) -> None:
    """Create notifications, the mails sent immediately, and the calls of the users' webhooks."""
    rules, quiet = rules_of(users), {user.pk: hours_of(user) for user in users}
    hooks: dict[int | None, list[Webhook]] = {}
    for hook in Webhook.objects.filter(user__in=users, enabled=True):
        hooks.setdefault(hook.user_id, []).append(hook)
    rows, calls = [], []
    for user, group in users.items():
        row = Notification(user=user, event=event, group=group, at=event.at, **about)
        when = (
            rules[user.pk][Channel.MAIL, group]
            if mail_is_configured() and user.email
            else When.NEVER
        )
        if when == When.DIGEST:
            row.digest_at = quiet[user.pk].next_digest(event.at)
        elif when == When.NOW:
            due = quiet[user.pk].allowed(event.at)
            row.message = Message(
                channel=Channel.MAIL, user=user, event=event, created_at=event.at, due_at=due
            )
        rows.append(row)
        if rules[user.pk][Channel.WEBHOOK, group] == When.NOW:
            due = quiet[user.pk].allowed(event.at)
            calls += [_call(event, hook, due) for hook in hooks.get(user.pk, [])]
    Message.objects.bulk_create(row.message for row in rows if row.message)
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
def mark_read(*, user: User, at: datetime, until: int, only: int | None = None) -> int:
    """Mark one notification, or all up to `until`, as read; return how many were unread."""
    unread = Notification.objects.filter(user=user, read_at=None, pk__lte=until)
    if only is not None:
        unread = unread.filter(pk=only)
    return unread.update(read_at=at)
