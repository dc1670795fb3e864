"""Reading notifications: what a person may see, who is concerned by an event, what waits to be sent."""

from collections.abc import Iterable, Mapping
from datetime import datetime

from django.db import transaction
from django.db.models import Q, QuerySet

from apps.accounts.models import User
from apps.accounts.permissions import scope_of
from apps.core.enums import Group
from apps.core.models import Event
from apps.notifications.domain.health import mail_is_configured
from apps.notifications.domain.preferences import hours_of, rules_of
from apps.notifications.domain.recipients import concerned_by, concerned_by_hold
from apps.notifications.enums import Channel, When
from apps.notifications.models import Message, Notification, Webhook
from apps.production.models import Hold, Request

#: The count beside “Notifications” goes no further.
MOST_COUNTED = 100


def visible_notifications(user: User | None) -> QuerySet[Notification]:
    """Return what the person was told of and may still see."""
    rows = Notification.objects.filter(user=user)
    scope = scope_of(user)
    if scope.sees_all:
        return rows
    mine = Q(request__experiment__in=scope.experiments) | Q(hold__experiment__in=scope.experiments)
    if scope.roles:
        mine |= Q(hold__isnull=False, hold__experiment=None)
    return rows.filter(Q(request=None, hold=None) | mine)


def unread_count(user: User) -> int:
    """Count what is not read, up to `MOST_COUNTED`."""
    return visible_notifications(user).filter(read_at=None)[:MOST_COUNTED].count()


@transaction.atomic
def notify_of_event(*, event: Event) -> int:
    """Write a notification for each person whom an event of a request concerns, and what is to be sent of it.

    Returns the number of people told. Nothing happens when the request is gone, or for those told before.
    """
    request = Request.objects.select_related("experiment").filter(pk=int(event.target_id)).first()
    if request is None:
        return 0
    return _notify(event, concerned_by(event, request), {request.experiment_id}, request=request)


@transaction.atomic
def notify_of_hold(*, event: Event) -> int:
    """The same for a hold of all production or of an experiment: each person is told once, not for each request."""
    hold = Hold.objects.filter(pk=int(event.target_id)).first()
    if hold is None:
        return 0
    groups, experiments = concerned_by_hold(event, hold)
    return _notify(event, groups, experiments, hold=hold)


def _notify(event: Event, groups: Mapping[int, Group], experiments: Iterable[int], **about: Request | Hold) -> int:
    told = set(Notification.objects.filter(event=event).values_list("user_id", flat=True))
    people = User.objects.filter(pk__in=groups.keys() - told, is_active=True).order_by("pk")
    found = {user: groups[user.pk] for user in people.select_related("notification_preferences")}
    _tell(event, found, **about)
    _plan_calls([_call(event, hook) for hook in Webhook.objects.filter(experiment__in=experiments, enabled=True)])
    return len(found)


def _tell(event: Event, people: Mapping[User, Group], **about: Request | Hold) -> None:
    """Write notifications, the mails that go at once, and calls of the people's webhooks."""
    rules, hooks, quiet = rules_of(people), _webhooks_of(people), {user.pk: hours_of(user) for user in people}
    rows, calls = [], []
    for user, group in people.items():
        row = Notification(user=user, event=event, group=group, at=event.at, **about)
        when = rules[user.pk][Channel.MAIL, group] if mail_is_configured() and user.email else When.NEVER
        if when == When.DIGEST:
            row.digest_at = quiet[user.pk].next_digest(event.at)
        elif when == When.NOW:
            due = quiet[user.pk].allowed(event.at)
            row.message = Message(channel=Channel.MAIL, user=user, event=event, created_at=event.at, due_at=due)
        rows.append(row)
        if rules[user.pk][Channel.WEBHOOK, group] == When.NOW:
            due = quiet[user.pk].allowed(event.at)
            calls += [_call(event, hook, due) for hook in hooks.get(user.pk, [])]
    Message.objects.bulk_create(row.message for row in rows if row.message)
    Notification.objects.bulk_create(rows)
    _plan_calls(calls)


def _webhooks_of(people: Iterable[User]) -> dict[int, list[Webhook]]:
    found: dict[int, list[Webhook]] = {}
    for hook in Webhook.objects.filter(user__in=people, enabled=True):
        found.setdefault(hook.user_id or 0, []).append(hook)
    return found


def _call(event: Event, hook: Webhook, due_at: datetime | None = None) -> Message:
    due = due_at or event.at
    return Message(channel=Channel.WEBHOOK, webhook=hook, event=event, created_at=event.at, due_at=due)


def _plan_calls(calls: Iterable[Message]) -> None:
    """Write calls of webhooks; one that is told of the event already is not told again."""
    Message.objects.bulk_create(calls, ignore_conflicts=True)


@transaction.atomic
def mark_read(*, user: User, at: datetime, until: int, only: int | None = None) -> int:
    """Mark what the person has seen as read: one row, or all up to the row `until`. Returns how many were unread."""
    unread = Notification.objects.filter(user=user, read_at=None, pk__lte=until)
    if only is not None:
        unread = unread.filter(pk=only)
    return unread.update(read_at=at)
