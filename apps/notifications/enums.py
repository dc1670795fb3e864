"""The words of notifications: ways out, and when."""

from django.db import models

from apps.core.enums import Group


class Channel(models.TextChoices):
    """A way out of the portal."""

    MAIL = "mail", "mail"
    WEBHOOK = "webhook", "webhook"


class When(models.TextChoices):
    """When a person is told by one channel of one group."""

    NOW = "now", "at once"
    DIGEST = "digest", "in the daily digest"
    NEVER = "never", "never"


class Level(models.TextChoices):
    """How a person follows one request, where it is not as the roles say."""

    WATCHING = "watching", "watching"
    MUTED = "muted", "muted"


class MessageState(models.TextChoices):
    """Where one mail or one call of a webhook stands."""

    WAITING = "waiting", "waiting"
    SENT = "sent", "sent"
    REFUSED = "refused", "refused"
    DROPPED = "dropped", "dropped"


#: What holds until a person says otherwise.
DEFAULTS: dict[tuple[str, str], When] = {(Channel.WEBHOOK, group): When.NOW for group in Group}
DEFAULTS |= {
    (Channel.MAIL, Group.TURN): When.NOW,
    (Channel.MAIL, Group.OUTCOME): When.NOW,
    (Channel.MAIL, Group.TROUBLE): When.NOW,
    (Channel.MAIL, Group.PROGRESS): When.DIGEST,
    (Channel.MAIL, Group.CHANGE): When.DIGEST,
    (Channel.MAIL, Group.OTHER): When.DIGEST,
}
