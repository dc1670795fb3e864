"""Notification preferences of a user.

Quiet hours, rules by channel and group of events, and watched or muted requests.
"""

from collections.abc import Iterable, Mapping
from datetime import time
from zoneinfo import ZoneInfo

from django.conf import settings
from django.db import transaction

from apps.accounts.models import User
from apps.core.errors import InvalidFields
from apps.notifications.domain.quiet_hours import Hours
from apps.notifications.enums import DEFAULTS, Level, When
from apps.notifications.models import Follow, Preferences, Rule
from apps.production.models import Request


def preferences_of(user: User) -> Preferences:
    """Return the user's preferences, or unsaved defaults."""
    saved: Preferences | None = getattr(user, "notification_preferences", None)
    return saved or Preferences(user=user)


def hours_of(user: User) -> Hours:
    """Return the user's quiet hours and digest hour."""
    chosen = preferences_of(user)
    try:
        zone = ZoneInfo(user.time_zone or settings.TIME_ZONE)
    except (LookupError, OSError, ValueError):
        # The zone was removed from the list since it was chosen.
        zone = ZoneInfo(settings.TIME_ZONE)
    return Hours(zone, chosen.digest_hour, chosen.quiet_from, chosen.quiet_until)


def rules_of(users: Iterable[User]) -> dict[int, dict[tuple[str, str], When]]:
    """Return by user when each channel notifies of each group."""
    users = list(users)
    rules = {user.pk: dict(DEFAULTS) for user in users}
    for rule in Rule.objects.filter(user__in=users):
        rules[rule.user_id][rule.channel, rule.group] = When(rule.when)
    return rules


def level_of(user: User, request: Request) -> str:
    """Return how the user follows a request: `watching`, `muted`, or "" for the default."""
    level = (
        Follow.objects.filter(user=user, request=request).values_list("level", flat=True).first()
    )
    return str(level or "")


@transaction.atomic
def save_preferences(
    *,
    user: User,
    digest_hour: int,
    quiet_from: time | None,
    quiet_until: time | None,
    rules: Mapping[tuple[str, str], When],
) -> None:
    """Save the user's preferences. Raises `InvalidFields`."""
    problems: dict[str, list[str]] = {}
    if not 0 <= digest_hour < 24:
        problems["digest_hour"] = ["Enter an hour from 0 to 23."]
    if (quiet_from is None) != (quiet_until is None):
        problems["quiet_until"] = ["Enter both times, or leave both empty."]
    elif quiet_from is not None and quiet_from == quiet_until:
        problems["quiet_until"] = [
            "Start and end are the same. Leave both empty for no quiet hours."
        ]
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
    """Watch or mute a request, or with an empty level return to the default.

    Raises `InvalidFields`.
    """
    if level not in {"", *Level.values}:
        raise InvalidFields({"level": ["Choose watching, muted, or nothing."]})
    if level:
        Follow.objects.update_or_create(user=user, request=request, defaults={"level": level})
    else:
        Follow.objects.filter(user=user, request=request).delete()
