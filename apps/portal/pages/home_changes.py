"""What changed since a user's last visit of the home page, or since a hand-over note."""

from dataclasses import dataclass
from datetime import datetime

from django.db.models import Q

from apps.accounts.models import User
from apps.accounts.permissions import is_opg
from apps.core.domain.event_kinds import headline, kind_named, what_happened
from apps.core.models import Event
from apps.diagnosis.domain.groups.triage import visible_groups
from apps.diagnosis.enums import GroupStatus
from apps.diagnosis.models import FailureGroup
from apps.hosts.models import HostExclusion
from apps.production.domain.attention import EVENTS
from apps.production.enums import AttentionKind
from apps.production.models import Attention, Request
from apps.statusboard.models import Incident

#: How many changes are shown, and how many of each kind are read.
MOST_SHOWN = 3
_MOST_READ = 50
#: For how many of the newest requests of a user events are read.
_MOST_REQUESTS = 200
#: Events by which the portal learns of an outage, or of its end; both may have been earlier.
_OUTAGE_EVENTS = ("incident.opened", "incident.reopened", "incident.closed")
_TRIAGE_EVENTS = ("group.assigned", "group.moved")
_HOST_EVENTS = ("host.excluded", "host.extended", "host.returned", "host.expired")


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


def changes_since(*, since: datetime, user: User, at: datetime) -> Changes:
    """Return what changed since a visit, at most `MOST_SHOWN`, in a fixed number of queries.

    These are outages, new and regressed failure groups, and requests: for the OPG those that need
    attention, for others the moves of their own.
    """
    changes = [*_incidents(since, at), *_groups(since, user)]
    if is_opg(user):
        changes += _attention(since, user)
    else:
        changes += _own_requests(since, user)
    return _newest(changes, since, MOST_SHOWN)


def changes_for_hand_over(*, since: datetime, user: User, at: datetime, most: int) -> Changes:
    """Return what the next shift needs to know, at most `most`, in a fixed number of queries.

    Beside what the OPG reads on its home page, this is the work of the shift: the triage of failure
    groups, and exclusions of hosts.
    """
    changes = [*_incidents(since, at), *_groups(since, user), *_attention(since, user)]
    changes += [*_triage(since, user), *_hosts(since)]
    return _newest(changes, since, most)


def _newest(changes: list[RecentChange], since: datetime, most: int) -> Changes:
    changes.sort(key=lambda change: change.at, reverse=True)
    return Changes(since, changes[:most], max(0, len(changes) - most))


def _newest_events(since: datetime, *kinds: str) -> dict[int, Event]:
    """Return the newest event of these kinds since then about each record, by its primary key."""
    newest: dict[int, Event] = {}
    for event in Event.objects.filter(kind__in=kinds).order_by("-id")[:_MOST_READ]:
        if event.at >= since:
            newest.setdefault(int(event.target_id), event)
    return newest


def _incidents(since: datetime, at: datetime) -> list[RecentChange]:
    """Return the outages that began or ended since then, and earlier ones reported since then."""
    reports = _newest_events(since, *_OUTAGE_EVENTS)
    begun_or_over = Q(started_at__gte=since) | Q(ended_at__gte=since)
    in_time = Q(pk__in=Incident.objects.overlapping(since, at).filter(begun_or_over).values("pk"))
    incidents = Incident.objects.filter(merged_into=None).filter(in_time | Q(pk__in=reports))
    changes = []
    for incident in incidents.select_related("service")[:_MOST_READ]:
        changed_at = incident.ended_at or incident.started_at
        sign = "up"
        text = f"Outage of {incident.service.name} ended"
        if incident.is_open:
            sign = incident.state
            text = f"{incident.service.name} is {incident.get_state_display().lower()}"
        if changed_at < since:
            changed_at = reports[incident.pk].at
            text += ", reported late"
        changes.append(RecentChange(changed_at, text, incident.get_absolute_url(), sign))
    return changes


def _groups(since: datetime, user: User) -> list[RecentChange]:
    """Return the groups found, or failing again, since then.

    The first job of a group may have ended earlier: its log is read later.
    """
    discoveries = _newest_events(since, "group.new")
    is_new = Q(first_seen_at__gte=since) | Q(pk__in=discoveries)
    regressed = Q(status=GroupStatus.REGRESSED, status_at__gte=since)
    changes = []
    groups = visible_groups(user).filter(is_new | regressed).defer("profile")
    for group in groups.order_by("-first_seen_at")[:_MOST_READ]:
        text = f"New failure: {group.title}"
        changed_at = group.first_seen_at
        if changed_at < since:
            if group.pk in discoveries:
                changed_at = discoveries[group.pk].at
            else:
                text = f"Failing again: {group.title}"
                changed_at = group.status_at
        changes.append(RecentChange(changed_at, text, group.get_absolute_url(), ""))
    return changes


def _triage(since: datetime, user: User) -> list[RecentChange]:
    """Return the newest assignment or change of status of each group since then."""
    newest = _newest_events(since, *_TRIAGE_EVENTS)
    changes = []
    groups: dict[int, FailureGroup] = visible_groups(user).defer("profile").in_bulk(list(newest))
    for pk, group in groups.items():
        event = newest[pk]
        text = f"Assigned to {event.new} by {event.actor}: {group.title}"
        if event.kind == "group.moved":
            text = f"{GroupStatus(event.new).label} by {event.actor}: {group.title}"
        changes.append(RecentChange(event.at, text, group.get_absolute_url(), ""))
    return changes


def _hosts(since: datetime) -> list[RecentChange]:
    """Return the newest change of each exclusion of a host since then."""
    newest = _newest_events(since, *_HOST_EVENTS)
    changes = []
    for pk, exclusion in HostExclusion.objects.in_bulk(list(newest)).items():
        event = newest[pk]
        text = f"{headline(event)}, by {event.actor}"
        changes.append(RecentChange(event.at, text, exclusion.get_absolute_url(), ""))
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
