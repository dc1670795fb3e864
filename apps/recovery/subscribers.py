"""Events of other apps that recovery subscribes to."""

from django.utils import timezone

from apps.core.domain.subscriptions import subscribe
from apps.core.models import Event
from apps.recovery.domain.decisions.decide import decide_again_about


@subscribe("recovery.decide_overridden", "verdict.overridden")
def on_verdict_overridden(event: Event) -> None:
    """Decide again about the job, which a rule may be about to retry."""
    decide_again_about(int(event.target_id), at=max(event.at, timezone.now()))
