"""Channels, times and states of notifications."""

from django.db import models

from apps.core.enums import Group


class Channel(models.TextChoices):
    """How a notification leaves the portal."""

    MAIL = "mail", "mail"
    WEBHOOK = "webhook", "webhook"


class When(models.TextChoices):
    """When one channel notifies a user of one group of events."""

    NOW = "now", "at once"
    DIGEST = "digest", "in the daily digest"
    NEVER = "never", "never"


class Level(models.TextChoices):
    """How a user follows one request, if not by the default of the roles."""

    WATCHING = "watching", "watching"
    MUTED = "muted", "muted"


class MessageState(models.TextChoices):
    """State of one mail or webhook call."""

    WAITING = "waiting", "waiting"
    SENT = "sent", "sent"
    REFUSED = "refused", "refused"
    DROPPED = "dropped", "dropped"


#: Rules of a user who has not chosen others.
DEFAULTS: dict[tuple[str, str], When] = {(Channel.WEBHOOK, group): When.NOW for group in Group}
DEFAULTS |= {
    (Channel.MAIL, Group.TURN): When.NOW,
    (Channel.MAIL, Group.OUTCOME): When.NOW,
    (Channel.MAIL, Group.TROUBLE): When.NOW,
    (Channel.MAIL, Group.PROGRESS): When.DIGEST,
    (Channel.MAIL, Group.CHANGE): When.DIGEST,
    (Channel.MAIL, Group.FAILURES): When.DIGEST,
    (Channel.MAIL, Group.REPORTS): When.NOW,
    (Channel.MAIL, Group.OTHER): When.DIGEST,
}
