"""How many requests wait for a user, by what they wait for: `5 to sign · 9 idle · 2 late`."""

from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlencode

from django.db.models import Count
from django.urls import reverse

from apps.accounts.models import User
from apps.accounts.permissions import scope_of
from apps.production.domain.approvals.inbox import rights_to_sign, waiting_for
from apps.production.domain.approvals.waits import WAIT_KINDS
from apps.production.enums import AttentionKind, RequestState
from apps.production.models import Attention


@dataclass(frozen=True)
class WaitCount:
    """How many requests wait for one thing, with the URL of their list."""

    label: str
    requests: int
    url: str


@dataclass(frozen=True)
class WaitCounts:
    """The counts by what requests wait for, in the order of the inbox.

    A request can count twice, such as one that is idle and late; `requests` counts it once.
    """

    requests: int
    to_sign: int
    counts: list[WaitCount]

    @property
    def overlaps(self) -> bool:
        """Whether a request counts more than once."""
        return sum(count.requests for count in self.counts) > self.requests


def count_waits(user: User, at: datetime) -> WaitCounts:
    """Count the requests that wait for a user, in a fixed number of queries."""
    held = {role for role, _ in scope_of(user).roles}
    waiting = waiting_for(user, at).order_by()
    states = waiting.values_list("state").annotate(Count("pk"))
    requests_by_wait: dict[str, int] = dict(states)
    requests = sum(requests_by_wait.values())

    marked = Attention.objects.filter(request__in=waiting.values("pk")).order_by()
    requests_by_wait |= dict(marked.values_list("kind").annotate(Count("pk")))
    to_sign = len(rights_to_sign(user, at))
    requests_by_wait[RequestState.AWAITING_APPROVAL] = to_sign

    counts = []
    for wait, kind in WAIT_KINDS.items():
        is_own_step = not kind.roles or held.intersection(kind.roles)
        if is_own_step and requests_by_wait.get(wait):
            counts.append(WaitCount(kind.count_label, requests_by_wait[wait], _list_of(wait)))
    return WaitCounts(requests, to_sign, counts)


def _list_of(wait: RequestState | AttentionKind) -> str:
    if wait == RequestState.AWAITING_APPROVAL:
        return reverse("production:desk")
    name = "state"
    if wait in AttentionKind:
        name = "attention"
    return f"{reverse('production:request-list')}?{urlencode({'mine': 'turn', name: wait.value})}"
