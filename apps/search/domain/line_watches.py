"""Watches of lines: users whom the portal notifies when a job writes a line again."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from django.db import transaction
from django.db.models import Q, QuerySet

from apps.accounts.models import User
from apps.accounts.permissions import scope_of
from apps.core.domain.bulk import rows_where_any
from apps.core.domain.events import publish
from apps.core.errors import InvalidFields
from apps.production.enums import PORTAL
from apps.search.models import LineTemplate, LineWatch, signed

if TYPE_CHECKING:
    from apps.search.domain.templates import StoredLog

#: A user is notified of a line at most once in this time.
PAUSE = timedelta(hours=1)
MOST_WATCHES = 100


@dataclass(frozen=True, slots=True)
class WatchedLine:
    """A watch and the text of its line; empty if the user may no longer see the line."""

    watch: LineWatch
    text: str


@transaction.atomic
def watch_line(*, user: User, line_hash: int, at: datetime) -> LineWatch:
    """Notify the user when a job that ends from now on writes a line. Idempotent.

    `line_hash` is the hash of its template. Raises `InvalidFields` if no job whose logs the user
    may see wrote it, or if the user watches too many lines.
    """
    stored_hash = signed(line_hash)
    if not LineTemplate.objects.visible_to(user).filter(hash=stored_hash).exists():
        raise InvalidFields({"template": ["No job that you may see wrote this line."]})
    User.objects.select_for_update(no_key=True).get(pk=user.pk)
    watches = LineWatch.objects.filter(user=user)
    if watch := watches.filter(hash=stored_hash).first():
        return watch
    if watches.count() >= MOST_WATCHES:
        raise InvalidFields(
            {"template": [f"You can watch {MOST_WATCHES} lines. Remove a watch first."]}
        )
    return LineWatch.objects.create(user=user, hash=stored_hash, created_at=at, seen_until=at)


def unwatch_line(*, user: User, line_hash: int) -> None:
    """Remove the user's watch of a line, if there is one."""
    LineWatch.objects.filter(user=user, hash=signed(line_hash)).delete()


def watches_of(user: User) -> QuerySet[LineWatch]:
    """Return the user's watches, newest first."""
    return LineWatch.objects.filter(user=user).order_by("-created_at", "-pk")


def is_watched(*, user: User, line_hash: int) -> bool:
    """Return whether the user watches the line with this hash."""
    return watches_of(user).filter(hash=signed(line_hash)).exists()


def with_texts(watches: Iterable[LineWatch], *, user: User) -> list[WatchedLine]:
    """Return watches of the user with the texts of their lines. One query."""
    visible = LineTemplate.objects.visible_to(user)
    listed = list(watches)
    rows = visible.filter(hash__in=[watch.hash for watch in listed])
    texts = dict(rows.values_list("hash", "text"))
    return [WatchedLine(watch, texts.get(watch.hash, "")) for watch in listed]


def notify_watchers(
    logs: Sequence["StoredLog"], keys: Mapping[int | None, Mapping[int, int]], *, at: datetime
) -> int:
    """Publish an event for each watched line of these logs, and return the number of watchers.

    `keys` are the primary keys of templates by experiment and hash. A watcher is notified of a job
    that may be seen, and ended after the last job of which the watcher was notified: a log that is
    read again is not news. Watches that another worker has locked are left to it.
    """
    line_hashes: set[int] = set()
    for keys_by_hash in keys.values():
        line_hashes.update(keys_by_hash)
    stored_hashes = [signed(line_hash) for line_hash in line_hashes]
    watched = rows_where_any(LineWatch, ("id",), "hash", stored_hashes)
    if not watched:
        return 0
    is_due = Q(notified_at=None) | Q(notified_at__lte=at - PAUSE)
    due = LineWatch.objects.filter(is_due, pk__in=[pk for (pk,) in watched], user__is_active=True)
    locked = due.select_for_update(no_key=True, of=("self",), skip_locked=True).order_by("pk")
    notified = []
    users_by_key: dict[int, list[str]] = {}
    for watch in locked.select_related("user").prefetch_related("user__memberships"):
        log = _newest_log(watch, logs)
        if log is None:
            continue
        watch.notified_at = at
        watch.seen_until = log.ended_at
        notified.append(watch)
        key = keys[log.experiment_id][watch.unsigned_hash]
        users_by_key.setdefault(key, []).append(watch.user.username)
    LineWatch.objects.bulk_update(notified, ["notified_at", "seen_until"])
    for template in LineTemplate.objects.filter(pk__in=users_by_key).order_by("pk"):
        users = users_by_key[template.pk]
        publish(kind="line.seen", target=template, by=PORTAL, at=at, data={"mentioned": users})
    return len(notified)


def _newest_log(watch: LineWatch, logs: Sequence["StoredLog"]) -> "StoredLog | None":
    """Return the newest log with the line of which the user was not notified, if there is one."""
    scope = scope_of(watch.user)
    newest = None
    for log in logs:
        is_news = log.ended_at > watch.seen_until and watch.unsigned_hash in log.lines
        if is_news and scope.sees(log.experiment_id):
            if newest is None or log.ended_at > newest.ended_at:
                newest = log
    return newest
