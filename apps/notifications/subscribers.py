"""Events that notifications subscribe to."""

from apps.core.domain.subscriptions import subscribe
from apps.core.models import Event
from apps.notifications.domain.notifications import notify


@subscribe(
    "notifications.notify",
    *(
        "request.*",
        "hold.*",
        "group.*",
        "impact.*",
        "experiment.notified",
        "known_error.*",
        "pack.*",
        "recovery.stopped",
        "report.weekly",
    ),
)
def on_event(event: Event) -> None:
    notify(event=event)
