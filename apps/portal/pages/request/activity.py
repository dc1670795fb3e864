"""What people did and said about a request, and how the user follows it."""

from dataclasses import dataclass

from apps.accounts.models import User
from apps.core.domain.events import events_of
from apps.core.models import Event
from apps.notifications.domain.atom_feeds import addresses_of
from apps.notifications.domain.preferences import level_of
from apps.production.domain.discussion import Thread, threads_of
from apps.production.domain.lineage.links import Related, related_to
from apps.production.models import Request

#: How many events the overview shows.
LATEST = 3


@dataclass(frozen=True)
class Activity:
    """The events of a request, its discussion, related requests, and how the user follows it.

    `discussed` are the paths of the fields with open threads.
    """

    events: list[Event]
    latest: list[Event]
    threads: list[Thread]
    open_threads: int
    discussed: set[str]
    related: list[Related]
    level: str
    feeds: dict[str, str]


def activity_of(request: Request, user: User) -> Activity:
    events = list(events_of(request))
    threads = threads_of(request)
    return Activity(
        events=events,
        latest=events[: -1 - LATEST : -1],
        threads=threads,
        open_threads=sum(thread.is_open for thread in threads),
        discussed={thread.first.field for thread in threads if thread.is_open},
        related=related_to(request),
        level=level_of(user, request),
        feeds=addresses_of(getattr(user, "notification_preferences", None), request),
    )
