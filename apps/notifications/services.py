"""Telling people of events, and what they say about being told. Sending is in `sending`."""

from collections.abc import Iterable, Mapping
from datetime import datetime, time

from django.db import transaction
from django.utils.crypto import get_random_string

from apps.accounts.models import Experiment, User
from apps.accounts.permissions import is_opg
from apps.core.errors import InvalidFields, NotAllowed
from apps.core.models import Event
from apps.core.services import publish
from apps.notifications import targets
from apps.notifications.enums import DEFAULTS, Channel, Group, Level, MessageState, When
from apps.notifications.models import Follow, Message, Notification, Preferences, Rule, Webhook
from apps.notifications.selectors import concerned_by, concerned_by_hold, hours_of, mail_is_configured, rules_of
from apps.notifications.signing import secret_of
from apps.production.models import Hold, Request

#: So many webhooks a person, or an experiment, may have.
MOST_WEBHOOKS = 5


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
def save_preferences(
    *,
    user: User,
    digest_hour: int,
    quiet_from: time | None,
    quiet_until: time | None,
    rules: Mapping[tuple[str, str], When],
) -> None:
    """Store when a person is told of what. Raises `InvalidFields`."""
    problems: dict[str, list[str]] = {}
    if not 0 <= digest_hour < 24:
        problems["digest_hour"] = ["An hour from 0 to 23."]
    if (quiet_from is None) != (quiet_until is None):
        problems["quiet_until"] = ["Give both times, or none."]
    elif quiet_from is not None and quiet_from == quiet_until:
        problems["quiet_until"] = ["The two times are the same: leave both empty for no quiet hours."]
    if problems:
        raise InvalidFields(problems)
    values = {"digest_hour": digest_hour, "quiet_from": quiet_from, "quiet_until": quiet_until}
    Preferences.objects.update_or_create(user=user, defaults=values)
    Rule.objects.filter(user=user).delete()
    Rule.objects.bulk_create(
        Rule(user=user, channel=channel, group=group, when=when)
        for (channel, group), when in rules.items()
        if DEFAULTS[channel, group] != when
    )


@transaction.atomic
def follow_request(*, request: Request, user: User, level: str) -> None:
    """Watch a request, mute it, or (an empty level) be told as the roles say. Raises `InvalidFields`."""
    if level not in {"", *Level.values}:
        raise InvalidFields({"level": ["watching, muted, or nothing."]})
    if level:
        Follow.objects.update_or_create(user=user, request=request, defaults={"level": level})
    else:
        Follow.objects.filter(user=user, request=request).delete()


@transaction.atomic
def mark_read(*, user: User, at: datetime, until: int, only: int | None = None) -> int:
    """Mark what the person has seen as read: one row, or all up to the row `until`. Returns how many were unread."""
    unread = Notification.objects.filter(user=user, read_at=None, pk__lte=until)
    if only is not None:
        unread = unread.filter(pk=only)
    return unread.update(read_at=at)


@transaction.atomic
def make_feed_address(*, user: User, by: object, at: datetime) -> None:
    """Give the person's feeds a new secret address; the one before works no more."""
    Preferences.objects.update_or_create(user=user, defaults={"feed_name": get_random_string(16)})
    publish(kind="feed.address_made", target=user, by=by, at=at)


@transaction.atomic
def revoke_feed_address(*, user: User, by: object, at: datetime) -> None:
    """Make the address of the person's feeds useless."""
    if Preferences.objects.filter(user=user, feed_name__isnull=False).update(feed_name=None):
        publish(kind="feed.address_revoked", target=user, by=by, at=at)


@transaction.atomic
def add_webhook(*, url: str, experiment: Experiment | None, by: User, at: datetime) -> tuple[Webhook, str]:
    """Add a webhook of a person's own, or by the OPG of an experiment; return it with its secret.

    Raises `NotAllowed`, `InvalidFields` where the address may not be called or there are too many.
    """
    if experiment is not None and not is_opg(by):
        raise NotAllowed("Only the OPG adds webhooks of experiments.")
    User.objects.select_for_update(no_key=True).get(pk=by.pk)
    owner = {"experiment": experiment} if experiment else {"user": by}
    try:
        targets.check_address(url)
    except targets.BadAddress as error:
        raise InvalidFields({"url": [str(error)]}) from None
    if Webhook.objects.filter(**owner).count() >= MOST_WEBHOOKS:
        raise InvalidFields({"url": [f"There are {MOST_WEBHOOKS} already: remove one."]})
    nonce = get_random_string(32)
    hook = Webhook.objects.create(url=url, nonce=nonce, created_at=at, created_by=by, **owner)
    publish(kind="webhook.added", target=hook, by=by, at=at, data={"host": targets.host_of(url)})
    return hook, secret_of(hook)


@transaction.atomic
def enable_webhook(*, webhook: Webhook, by: User, at: datetime) -> None:
    """Switch a webhook on again; what waited for it goes out now."""
    Webhook.objects.filter(pk=webhook.pk).update(
        enabled=True, failing_since=None, retry_at=None, failures=0, last_error=""
    )
    Message.objects.filter(webhook=webhook, state=MessageState.WAITING, due_at__gt=at, attempts__gt=0).update(due_at=at)
    publish(kind="webhook.enabled", target=webhook, by=by, at=at)


@transaction.atomic
def remove_webhook(*, webhook: Webhook, by: User, at: datetime) -> None:
    """Remove a webhook, and what waits for it."""
    publish(kind="webhook.removed", target=webhook, by=by, at=at)
    webhook.delete()


@transaction.atomic
def disable_webhook(*, webhook: Webhook, by: object, at: datetime) -> None:
    """Switch off a webhook that fails, and tell its owner; what waits for it stays until it is switched on."""
    if not Webhook.objects.filter(pk=webhook.pk, enabled=True).update(enabled=False):
        return
    event = publish(
        kind="webhook.disabled", target=webhook, by=by, at=at, reason=f"{targets.host_of(webhook.url)} did not answer."
    )
    owner = User.objects.select_related("notification_preferences").get(pk=webhook.created_by_id)
    if owner.is_active:
        _tell(event, {owner: Group.TROUBLE})


@transaction.atomic
def retry_messages(*, pks: Iterable[int], at: datetime) -> int:
    """Send refused messages again, and those that wait at once. Returns how many."""
    rows = Message.objects.filter(pk__in=list(pks), state__in=[MessageState.WAITING, MessageState.REFUSED])
    return rows.update(state=MessageState.WAITING, due_at=at, refusals=0)
