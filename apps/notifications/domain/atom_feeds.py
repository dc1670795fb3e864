"""Atom feeds: of a request, of an experiment's requests, and of what a person was told."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import urlsplit

from django.conf import settings
from django.db.models import CharField, Q, QuerySet
from django.db.models.functions import Cast
from django.urls import reverse
from django.utils.feedgenerator import Atom1Feed

from apps.accounts.models import Experiment, User
from apps.accounts.permissions import scope_of
from apps.core.domain.event_kinds import headline
from apps.core.models import Event
from apps.notifications.domain.mail import clean
from apps.notifications.domain.secrets import feed_name, feed_token
from apps.notifications.models import Preferences
from apps.production.models import Hold, Request

#: A feed holds so many entries, the newest.
SIZE = 50
_LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Entry:
    """One event with the address of the page that it is about."""

    event: Event
    path: str


class Feed(Atom1Feed):
    """Atom, whose time is that of its newest entry: the same entries give the same text."""

    def latest_post_date(self) -> datetime:
        return max((item["updateddate"] for item in self.items), default=_LONG_AGO)


def reader_of(token: str) -> User | None:
    """Return the person whose feeds this token opens, who must still be active."""
    name = feed_name(token)
    return User.objects.filter(notification_preferences__feed_name=name, is_active=True).first() if name else None


def addresses_of(preferences: Preferences | None, request: Request | None = None) -> dict[str, str]:
    """Return the addresses of a person's feeds by what they tell of; none where there is no address."""
    if preferences is None or not preferences.feed_name:
        return {}
    token = feed_token(preferences.feed_name)
    if request is not None:
        return {str(request): _absolute("notifications:feed-request", token, request.key)}
    found = {"what concerns you": _absolute("notifications:feed-inbox", token)}
    for experiment in _experiments(preferences.user):
        found[f"requests of {experiment}"] = _absolute("notifications:feed-experiment", token, experiment.key)
    return found


def _experiments(user: User) -> QuerySet[Experiment]:
    scope = scope_of(user)
    rows = Experiment.objects.order_by("key")
    return rows if scope.sees_all else rows.filter(pk__in=scope.experiments)


def _absolute(name: str, *arguments: str) -> str:
    return settings.PORTAL_URL + reverse(name, args=arguments)


def atom(*, title: str, path: str, feed_path: str, entries: Sequence[Entry]) -> tuple[bytes, datetime]:
    """Write a feed; return it with the time of its newest entry."""
    host = urlsplit(settings.PORTAL_URL).hostname
    feed = Feed(
        title=title,
        link=settings.PORTAL_URL + path,
        description="",
        feed_url=settings.PORTAL_URL + feed_path,
        feed_guid=f"tag:{host},2026:{path}",
    )
    for entry in entries:
        event = entry.event
        feed.add_item(
            title=clean(headline(event)),
            link=settings.PORTAL_URL + entry.path,
            description=clean(event.reason),
            author_name=clean(event.actor),
            unique_id=f"tag:{host},2026:event/{event.pk}",
            pubdate=event.at,
            updateddate=event.at,
        )
    return feed.writeString("utf-8").encode(), feed.latest_post_date()


def events_of_experiment(experiment: Experiment) -> QuerySet[Event]:
    """Return the events of an experiment's requests, newest first; `hold_events_of` has those over all of them."""
    requests = Request.objects.filter(experiment=experiment).annotate(text=Cast("pk", CharField())).values("text")
    return Event.objects.filter(target_type=Request._meta.label_lower, target_id__in=requests).order_by("-id")


def hold_events_of(experiment: Experiment) -> QuerySet[Event]:
    """Return the events of holds of an experiment, and of all production, newest first."""
    over = Hold.objects.filter(Q(experiment=experiment) | Q(experiment=None), stage=None)
    keys = over.annotate(text=Cast("pk", CharField())).values("text")
    return Event.objects.filter(target_type=Hold._meta.label_lower, target_id__in=keys).order_by("-id")
