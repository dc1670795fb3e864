"""Atom feeds of requests, experiments and a user's notifications, with secret URLs."""

from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from urllib.parse import urlencode, urlsplit

from django.conf import settings
from django.db import transaction
from django.db.models import CharField, Q, QuerySet
from django.db.models.functions import Cast
from django.urls import reverse
from django.utils.crypto import constant_time_compare, get_random_string
from django.utils.feedgenerator import Atom1Feed

from apps.accounts.domain.experiments import visible_experiments
from apps.accounts.models import Experiment, Principal, User
from apps.core.domain.event_kinds import headline
from apps.core.domain.events import publish
from apps.core.domain.hidden_characters import mark_hidden
from apps.core.models import Event
from apps.notifications.models import Preferences
from apps.production.models import Hold, Request

#: A feed holds the newest entries, at most this many.
SIZE = 50
#: An event, and the path of the page it is about.
Entry = tuple[Event, str]
_NAME_LENGTH = 16
_LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)


class AtomFeed(Atom1Feed):
    """Atom with the time of its newest entry: the same entries give the same text."""

    def latest_post_date(self) -> datetime:
        return max((item["updateddate"] for item in self.items), default=_LONG_AGO)


@transaction.atomic
def make_feed_address(*, user: User, by: Principal, at: datetime) -> None:
    """Create a new secret URL for the user's feeds; the previous one stops working."""
    Preferences.objects.update_or_create(
        user=user, defaults={"feed_name": get_random_string(_NAME_LENGTH)}
    )
    publish(kind="feed.address_made", target=user, by=by, at=at)


@transaction.atomic
def revoke_feed_address(*, user: User, by: Principal, at: datetime) -> None:
    """Revoke the URL of the user's feeds."""
    if Preferences.objects.filter(user=user, feed_name__isnull=False).update(feed_name=None):
        publish(kind="feed.address_revoked", target=user, by=by, at=at)


def reader_of(token: str) -> User | None:
    """Return the active user whose feeds this token opens."""
    rows = Preferences.objects.select_related("user").filter(
        feed_name=token[:_NAME_LENGTH], user__is_active=True
    )
    preferences = rows.first()
    if preferences is None:
        return None
    if not any(constant_time_compare(valid, token) for valid in preferences.all_feed_tokens()):
        return None
    return preferences.user


def addresses_of(preferences: Preferences | None, request: Request | None = None) -> dict[str, str]:
    """Return the URLs of a user's feeds by their content, or only the URL for one request.

    Empty if the user has none.
    """
    if preferences is None or not preferences.feed_name:
        return {}

    token = preferences.feed_token
    if request is not None:
        return {str(request): _absolute("notifications:feed-request", token, request.key)}

    addresses = {"your notifications": _absolute("notifications:feed-inbox", token)}
    for experiment in visible_experiments(preferences.user).order_by("key"):
        addresses[f"requests of {experiment}"] = _absolute(
            "notifications:feed-experiment", token, experiment.key
        )
    return addresses


def search_address(preferences: Preferences | None, query: str) -> str:
    """Return the URL of the feed of a search; empty if the user has no feeds."""
    if preferences is None or not preferences.feed_name:
        return ""
    address = _absolute("portal:search-feed", preferences.feed_token)
    return f"{address}?{urlencode({'q': query})}"


def _absolute(name: str, *arguments: str) -> str:
    return settings.PORTAL_URL + reverse(name, args=arguments)


def atom(
    *, title: str, path: str, feed_path: str, entries: Sequence[Entry]
) -> tuple[bytes, datetime]:
    """Write a feed; return it with the time of its newest entry."""
    host = urlsplit(settings.PORTAL_URL).hostname
    feed = AtomFeed(
        title=mark_hidden(title),
        link=settings.PORTAL_URL + path,
        description="",
        feed_url=settings.PORTAL_URL + feed_path,
        feed_guid=f"tag:{host},2026:{path}",
    )
    for event, event_path in entries:
        feed.add_item(
            title=mark_hidden(headline(event)),
            link=settings.PORTAL_URL + event_path,
            description=escape(mark_hidden(event.reason)),  # summaries are HTML
            author_name=mark_hidden(event.actor),
            unique_id=f"tag:{host},2026:event/{event.pk}",
            pubdate=event.at,
            updateddate=event.at,
        )
    return feed.writeString("utf-8").encode(), feed.latest_post_date()


def events_of_experiment(experiment: Experiment) -> QuerySet[Event]:
    """Return the events of an experiment's requests, newest first.

    `hold_events_of` has the events of its holds.
    """
    requests = (
        Request.objects.filter(experiment=experiment)
        .annotate(text=Cast("pk", CharField()))
        .values("text")
    )
    return Event.objects.filter(
        target_type=Request._meta.label_lower, target_id__in=requests
    ).order_by("-id")


def hold_events_of(experiment: Experiment) -> QuerySet[Event]:
    """Return the events of holds of an experiment, and of all production, newest first."""
    over = Hold.objects.filter(Q(experiment=experiment) | Q(experiment=None), stage=None)
    keys = over.annotate(text=Cast("pk", CharField())).values("text")
    return Event.objects.filter(target_type=Hold._meta.label_lower, target_id__in=keys).order_by(
        "-id"
    )
