"""Reading notifications: what a person may see, who is concerned by an event, what waits to be sent."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from django.conf import settings
from django.db.models import CharField, Q, QuerySet
from django.db.models.functions import Cast

from apps.accounts.enums import Role
from apps.accounts.models import Experiment, Membership, User
from apps.accounts.permissions import is_opg, scope_of
from apps.core.models import Event
from apps.notifications.enums import DEFAULTS, Channel, Group, Level, MessageState, When
from apps.notifications.hours import Hours
from apps.notifications.kinds import Concerned, group_for, kind_of
from apps.notifications.models import Follow, Message, Notification, Preferences, Rule, Webhook
from apps.production.approvals import asked_of, people_of, slots_of
from apps.production.holds import requests_under
from apps.production.models import Hold, Request

#: The count beside “Notifications” goes no further.
MOST_COUNTED = 100


def mail_is_configured() -> bool:
    return bool(settings.EMAIL_HOST)


def visible_notifications(user: Any) -> QuerySet[Notification]:
    """Return what the person was told of and may still see."""
    rows = Notification.objects.filter(user=user)
    scope = scope_of(user)
    if scope.sees_all:
        return rows
    mine = Q(request__experiment__in=scope.experiments) | Q(hold__experiment__in=scope.experiments)
    if scope.roles:
        mine |= Q(hold__isnull=False, hold__experiment=None)
    return rows.filter(Q(request=None, hold=None) | mine)


def unread_count(user: Any) -> int:
    """Count what is not read, up to `MOST_COUNTED`."""
    return visible_notifications(user).filter(read_at=None)[:MOST_COUNTED].count()


def preferences_of(user: User) -> Preferences:
    """Return the person's preferences, or the defaults, which are not stored."""
    found: Preferences | None = getattr(user, "notification_preferences", None)
    return found or Preferences(user=user)


def hours_of(user: User) -> Hours:
    """Return when this person may be disturbed."""
    chosen = preferences_of(user)
    try:
        zone = ZoneInfo(user.time_zone or settings.TIME_ZONE)
    except (LookupError, OSError, ValueError):  # a zone that has gone from the list since it was chosen
        zone = ZoneInfo(settings.TIME_ZONE)
    return Hours(zone, chosen.digest_hour, chosen.quiet_from, chosen.quiet_until)


def rules_of(users: Iterable[User]) -> dict[int, dict[tuple[str, str], When]]:
    """Return for each person when each group is told by each channel."""
    users = list(users)
    rules = {user.pk: dict(DEFAULTS) for user in users}
    for rule in Rule.objects.filter(user__in=users):
        rules[rule.user_id][rule.channel, rule.group] = When(rule.when)
    return rules


def level_of(user: Any, request: Request) -> str:
    """Return how the person follows a request: watching, muted, or nothing special."""
    level = Follow.objects.filter(user=user, request=request).values_list("level", flat=True).first()
    return str(level or "")


def concerned_by(event: Event, request: Request) -> dict[int, Group]:
    """Return whom an event concerns, by primary key, and as what; never who did it, nor who has muted the request."""
    reasons: dict[int, set[Concerned]] = {}
    for reason, people in _candidates(event, request).items():
        for pk in people:
            reasons.setdefault(pk, set()).add(reason)
    for pk in Follow.objects.filter(request=request, level=Level.MUTED).values_list("user_id", flat=True):
        reasons.pop(pk, None)
    return _groups(event, reasons)


def _groups(event: Event, reasons: Mapping[int, set[Concerned]]) -> dict[int, Group]:
    actors = set(User.objects.filter(username=event.actor).values_list("pk", flat=True))
    kind = kind_of(event)
    groups = {pk: group_for(kind, why) for pk, why in reasons.items() if pk not in actors}
    return {pk: group for pk, group in groups.items() if group is not None}


def concerned_by_hold(event: Event, hold: Hold) -> tuple[dict[int, Group], set[int]]:
    """Return whom a hold over many requests concerns, as what, and the experiments of these; some queries for all.

    Each person counts once, for all requests under it that the person has not muted.
    """
    under = requests_under(hold)
    rows = list(under.values_list("pk", "experiment_id", "created_by_id", "submitted_by_id"))
    liaisons: dict[int | None, set[int]] = {}
    for experiment, user in Membership.objects.filter(role=Role.LIAISON).values_list("experiment_id", "user_id"):
        liaisons.setdefault(experiment, set()).add(user)
    follows: dict[str, dict[int, set[int]]] = {level: {} for level in Level.values}
    for level, pk, user in Follow.objects.filter(request__in=under).values_list("level", "request_id", "user_id"):
        follows[level].setdefault(pk, set()).add(user)
    reasons: dict[int, set[Concerned]] = {}
    for pk, experiment, *requesters in rows:
        people = {
            Concerned.REQUESTER: {user for user in requesters if user is not None},
            Concerned.LIAISONS: liaisons.get(experiment, set()) | liaisons.get(None, set()),
            Concerned.WATCHERS: follows[Level.WATCHING].get(pk, set()),
        }
        for reason, users in people.items():
            for user in users - follows[Level.MUTED].get(pk, set()):
                reasons.setdefault(user, set()).add(reason)
    for user in _named(event):
        reasons.setdefault(user, set()).add(Concerned.MENTIONED)
    return _groups(event, reasons), {experiment for _, experiment, *_ in rows}


def _candidates(event: Event, request: Request) -> dict[Concerned, set[int]]:
    requester = {pk for pk in (request.created_by_id, request.submitted_by_id) if pk is not None}
    here = Q(experiment=request.experiment_id) | Q(experiment=None)
    members: dict[str, set[int]] = {}
    for role, pk in Membership.objects.filter(here).values_list("role", "user_id"):
        members.setdefault(role, set()).add(pk)
    watchers = Follow.objects.filter(request=request, level=Level.WATCHING).values_list("user_id", flat=True)
    return {
        Concerned.REQUESTER: requester,
        Concerned.LIAISONS: members.get(Role.LIAISON, set()),
        Concerned.APPROVERS: _signers(event, request)
        if event.kind == "request.pass"
        else members.get(Role.APPROVER, set()) - requester,
        Concerned.WATCHERS: set(watchers),
        Concerned.MENTIONED: _named(event),
    }


def _named(event: Event) -> set[int]:
    """Return the people whom an event names: those who are mentioned, or reminded."""
    data = event.data if isinstance(event.data, dict) else {}
    named = data.get("people" if event.kind in {"request.reminder", "hold.reminder"} else "mentioned")
    names = [str(name) for name in named] if isinstance(named, list) else []
    return set(User.objects.filter(username__in=names).values_list("pk", flat=True)) if names else set()


def _signers(event: Event, request: Request) -> set[int]:
    """Return who can give a signature that is missing, also in the place of somebody who is away."""
    missing = [slot.group for slot in slots_of(request) if slot.signature is None]
    people = people_of(missing, asked_of(request), event.at)
    names = {person.name for group in people.values() for person in group}
    return set(User.objects.filter(username__in=names).values_list("pk", flat=True))


def webhooks_for(user: Any) -> QuerySet[Webhook]:
    """Return the webhooks that this person may change: the own ones; for the OPG those of experiments too."""
    mine = Q(user=user)
    if is_opg(user):
        mine |= Q(experiment__isnull=False)
    return Webhook.objects.filter(mine).select_related("experiment").order_by("pk")


def events_of_experiment(experiment: Experiment) -> QuerySet[Event]:
    """Return the events of an experiment's requests, newest first; `hold_events_of` has those over all of them."""
    requests = Request.objects.filter(experiment=experiment).annotate(text=Cast("pk", CharField())).values("text")
    return Event.objects.filter(target_type=Request._meta.label_lower, target_id__in=requests).order_by("-id")


def hold_events_of(experiment: Experiment) -> QuerySet[Event]:
    """Return the events of holds of an experiment, and of all production, newest first."""
    over = Hold.objects.filter(Q(experiment=experiment) | Q(experiment=None), stage=None)
    keys = over.annotate(text=Cast("pk", CharField())).values("text")
    return Event.objects.filter(target_type=Hold._meta.label_lower, target_id__in=keys).order_by("-id")


@dataclass(frozen=True)
class Health:
    """How one channel does, for the health page."""

    channel: str
    configured: bool
    waiting: int
    late: int
    refused: int
    last_error: str


def channels_health(at: datetime) -> list[Health]:
    """Tell of each channel how many messages wait, how many of them were tried in vain, and the last error."""
    rows: Mapping[str, QuerySet[Message]] = {each: Message.objects.filter(channel=each) for each in Channel.values}
    found = []
    for channel, messages in rows.items():
        waiting = messages.filter(state=MessageState.WAITING)
        failed = waiting.filter(attempts__gt=0)
        last = failed.order_by("-due_at").values_list("last_error", flat=True).first()
        found.append(
            Health(
                channel=channel,
                configured=channel != Channel.MAIL or mail_is_configured(),
                waiting=waiting.count(),
                late=failed.count(),
                refused=messages.filter(state=MessageState.REFUSED).count(),
                last_error=last or "",
            )
        )
    return found
