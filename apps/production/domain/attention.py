"""Needs for attention, stored for each request by `progress`, with an event for each change."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from django.db import transaction

from apps.core.domain.events import publish
from apps.production.domain.approvals.inbox import responsible_users, step_of_attention
from apps.production.domain.approvals.waits import WAIT_KINDS
from apps.production.enums import CLOSED, PORTAL, AttentionKind
from apps.production.models import Attention, Request

MAX_TEXT = 300
#: The event that marks a request, by the kind of its need.
EVENTS = {kind: WAIT_KINDS[kind].event for kind in AttentionKind}


@dataclass(frozen=True)
class Need:
    """Since when and why a request needs attention. `text` follows a label such as `Stuck: `."""

    since: datetime
    text: str


Needs = Mapping[AttentionKind, Need]


def is_news(stored: Mapping[str, Need], needs: Needs) -> bool:
    """Whether the needs differ from the stored ones: in kinds, in text, or since when it is stuck.

    Other kinds keep their first time.
    """
    same = stored.keys() == needs.keys() and all(
        stored[kind].text == need.text[:MAX_TEXT] for kind, need in needs.items()
    )
    stuck = AttentionKind.STUCK
    return not same or (stuck in needs and stored[stuck].since != needs[stuck].since)


@transaction.atomic
def keep_attention(*, request: Request, needs: Needs, at: datetime) -> bool:
    """Store the current needs, and publish each kind that is new or over.

    Return whether anything changed.
    """
    current = (
        Request.objects.select_for_update(of=("self",))
        .select_related("experiment")
        .get(pk=request.pk)
    )
    marks = {AttentionKind(mark.kind): mark for mark in Attention.objects.filter(request=current)}
    if not is_news({kind: Need(mark.since, mark.text) for kind, mark in marks.items()}, needs):
        return False
    # First those that are over: an idle request that needs a change is stored in the same place.
    for kind, mark in marks.items():
        if kind in needs:
            continue
        mark.delete()
        if current.state not in CLOSED:
            over = f"No longer {mark.get_kind_display()}."
            if kind == AttentionKind.NEEDS_CHANGE:
                over = "No longer needs a change."
            _publish("request.recovered", mark, at, over)
    for kind, need in needs.items():
        mark = marks.get(kind) or Attention(request=current, kind=kind, since=need.since)
        is_new = mark.pk is None
        mark.text = need.text[:MAX_TEXT]
        mark.since = need.since if kind == AttentionKind.STUCK else mark.since
        mark.save()
        if is_new:
            step = step_of_attention(current, kind, at)
            _publish(EVENTS[kind], mark, at, f"{mark.text}. {step}.".replace("..", "."))
    return True


def _publish(event: str, mark: Attention, at: datetime, reason: str) -> None:
    people = responsible_users(AttentionKind(mark.kind), mark.request.experiment_id)
    data = {"kind": mark.get_kind_display(), "people": people, "since": mark.since.isoformat()}
    publish(kind=event, target=mark.request, by=PORTAL, at=at, reason=reason, data=data)
