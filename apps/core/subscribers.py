"""What the event log does with events of processes that do not know the subscribers, such as capture's."""

from apps.core.domain.outbox import hand_on
from apps.core.domain.subscriptions import SPREAD, subscribe
from apps.core.models import Event


@subscribe(SPREAD)
def on_left_to_workers(event: Event) -> None:
    hand_on(event=event, at=event.at)
