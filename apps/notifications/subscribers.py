"""Events that notifications subscribe to."""

from apps.core.domain.subscriptions import subscribe
from apps.core.models import Event
from apps.notifications.domain.notifications import MESSAGE, notify
from apps.notifications.domain.targets import events_that_notify


@subscribe("notifications.notify", MESSAGE, *events_that_notify())
def on_event(event: Event) -> None:
    notify(event=event)
