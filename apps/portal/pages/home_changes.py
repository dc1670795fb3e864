"""What changed since a user's last visit of the home page."""

from dataclasses import dataclass
from datetime import datetime

from django.db.models import Q

from apps.accounts.models import User
from apps.accounts.permissions import is_opg
from apps.core.domain.event_kinds import kind_named, what_happened
from apps.core.models import Event
from apps.diagnosis.domain.groups.triage import visible_groups
from apps.diagnosis.enums import GroupStatus
from apps.production.domain.attention import EVENTS
from apps.production.enums import AttentionKind
from apps.production.models import Attention, Request
from apps.statusboard.models import Incident

#: How many changes are shown, and how many of each kind are read.
MOST_SHOWN = 3
_MOST_READ = 50
#: For how many of the newest requests of a user events are read.
_MOST_REQUESTS = 200


@dataclass(frozen=True)
class RecentChange:
    """Something that changed: when, a text, the URL of its page, and the sign of a state."""

    at: datetime
    text: str
    url: str
    sign: str


@dataclass(frozen=True)
class Changes:
    """The newest changes since a visit, and the number of further ones."""

    since: datetime
    shown: list[RecentChange]
    more: int


def changes_since(*, since: datetime, user: User, at: datetime, most: int = MOST_SHOWN) -> Changes:
    """Return what changed since a visit, at most `most` changes, in a fixed number of queries.

    These are outages, new and regressed failure groups, and requests: for the OPG those that need
    attention, for others the moves of their own.
    """
    changes = [*_incidents(since, at), *_groups(since, user)]
    if is_opg(user):
        changes += _attention(since, user)
    else:
        changes += _own_requests(since, user)
    changes.sort(key=lambda change: change.at, reverse=True)
    return Changes(since, changes[:most], max(0, len(changes) - most))


def _incidents(since: datetime, at: datetime) -> list[RecentChange]:
    incidents = Incident.objects.filter(merged_into=None).overlapping(since, at)
    begun_or_over = Q(started_at__gte=since) | Q(ended_at__gte=since)
    changes = []
    for incident in incidents.filter(begun_or_over).select_related("service")[:_MOST_READ]:
        name = incident.service.name
        url = incident.get_absolute_url()
        if incident.ended_at:
            changes.append(RecentChange(incident.ended_at, f"Outage of {name} ended", url, "up"))
        else:
            state = incident.get_state_display().lower()
            changes.append(
                RecentChange(incident.started_at, f"{name} is {state}", url, incident.state)
            )
    return changes


def _groups(since: datetime, user: User) -> list[RecentChange]:
    is_new = Q(first_seen_at__gte=since)
    regressed = Q(status=GroupStatus.REGRESSED, status_at__gte=since)
    changes = []
    groups = visible_groups(user).filter(is_new | regressed).defer("profile")
    for group in groups.order_by("-first_seen_at")[:_MOST_READ]:
        url = group.get_absolute_url()
        if group.first_seen_at >= since:
            changes.append(
                RecentChange(group.first_seen_at, f"New failure: {group.title}", url, "")
            )
        else:
            changes.append(RecentChange(group.status_at, f"Failing again: {group.title}", url, ""))
    return changes


def _attention(since: datetime, user: User) -> list[RecentChange]:
    rows = Attention.objects.filter(since__gte=since, request__in=Request.objects.visible_to(user))
    changes = []
    for row in rows.select_related("request").order_by("-since")[:_MOST_READ]:
        kind = kind_named(EVENTS[AttentionKind(row.kind)])
        text = f"{row.request.key} {kind.predicate}"
        changes.append(RecentChange(row.since, text, row.request.get_absolute_url(), row.kind))
    return changes


def _own_requests(since: datetime, user: User) -> list[RecentChange]:
    """Return the newest move of each request of a user, except the user's own moves."""
    own = Request.objects.visible_to(user).filter(Q(created_by=user) | Q(submitted_by=user))
    requests = {}
    for request in own.order_by("-pk")[:_MOST_REQUESTS]:
        requests[str(request.pk)] = request
    events = Event.objects.filter(
        target_type=Request._meta.label_lower, target_id__in=requests, at__gte=since
    )
    moves = events.exclude(new="").exclude(actor=user.username).order_by("id")
    newest = {}
    for event in moves:
        newest[event.target_id] = event
    changes = []
    for target_id, event in newest.items():
        request = requests[target_id]
        text = f"{request.key} {what_happened(event)}"
        changes.append(RecentChange(event.at, text, request.get_absolute_url(), request.state))
    return changes
