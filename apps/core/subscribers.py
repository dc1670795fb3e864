"""Creates the deliveries of events from processes without subscribers, such as capture."""

from apps.core.domain.outbox import create_deliveries
from apps.core.domain.subscriptions import SPREAD, subscribe
from apps.core.models import Event


@subscribe(SPREAD)
def on_left_to_workers(event: Event) -> None:
    create_deliveries(event=event, at=event.at)
