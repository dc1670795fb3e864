"""What notifications do when something happens to a request."""

from apps.core.models import Event
from apps.core.outbox import subscribe
from apps.notifications.services import notify_of_event
from apps.production.models import Request


@subscribe("notifications.notify", "request.*", "hold.*")
def on_request_event(event: Event) -> None:
    """Tell of what happens to a request; a hold of more than one is a banner on every page."""
    if event.target_type == Request._meta.label_lower:
        notify_of_event(event=event)
