"""Events of webhooks, feeds and messages to experiments."""

from apps.core.domain.event_kinds import EventKind, declare, declare_administrative
from apps.core.enums import Audience, Group

declare(
    EventKind(
        "experiment.notified",
        "notified {experiment}",
        "needs the attention of its experiment",
        {Audience.MENTIONED: Group.TURN},
    ),
    EventKind("webhook.added", "added a webhook to {host}", "was added"),
    EventKind("webhook.enabled", "enabled the webhook", "was enabled"),
    EventKind("webhook.secret_renewed", "made a new secret", "has a new secret"),
    EventKind(
        "webhook.disabled",
        "disabled the webhook: it failed for too long",
        "was disabled: it failed for too long",
        {Audience.OWNER: Group.TROUBLE},
    ),
    EventKind("webhook.tested", "sent a test to the webhook", "is tested: this call is the test"),
    EventKind("webhook.removed", "removed the webhook", "was removed"),
    EventKind("feed.address_made", "created feed addresses", "has new feed addresses"),
    EventKind(
        "feed.address_revoked", "revoked the feed addresses", "had the feed addresses revoked"
    ),
)

declare_administrative("webhook")
