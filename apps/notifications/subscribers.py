"""Events that notifications subscribe to."""

from apps.core.domain.subscriptions import subscribe
from apps.core.models import Event
from apps.notifications.domain.notifications import notify_of_event, notify_of_hold
from apps.notifications.domain.recipients import is_wide
from apps.production.models import Request


@subscribe("notifications.notify", "request.*", "hold.*")
def on_request_event(event: Event) -> None:
    """Notify users of events of requests, and of holds of all production or of an experiment."""
    if event.target_type == Request._meta.label_lower:
        notify_of_event(event=event)
    elif is_wide(event):
        notify_of_hold(event=event)
