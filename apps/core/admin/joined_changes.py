"""What admins changed, in the back office and on pages of the portal: one list of both histories.

The back office logs its changes with their values; pages, commands and the API publish events.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.apps import apps
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.db.models import Model, Q
from django.utils.text import capfirst

from apps.core.admin.lists import address_of_record
from apps.core.admin.record_history import (
    SAME_CHANGE_WITHIN,
    Change,
    HistoryEntry,
    entry_of_event,
    entry_of_log,
    take_event_of_change,
)
from apps.core.domain.event_kinds import administrative_kinds, what_was_done
from apps.core.domain.events import select_people
from apps.core.models import Event

#: Changes of a page.
PAGE_SIZE = 100
#: Events and changes that are read for a page: more, because several events join one change.
_MOST_READ = 4 * PAGE_SIZE

#: The label of a model, in lower case, and the key of one of its rows.
Target = tuple[str, str]


@dataclass
class AdminChange:
    """A change of a record: what was done, the record and its kind.

    `url` is the page of the record, empty if it was deleted.
    """

    entry: HistoryEntry
    record: str
    kind: str
    target: Target
    url: str = ""


def newest_changes(
    *, since: datetime, before: datetime, query: str = ""
) -> tuple[list[AdminChange], datetime | None]:
    """Return a page of changes since a time and before another, newest first.

    `query` is a part of a user name or of the name of a record. The second value is the time before
    which older changes are, None if there are none. The number of database queries depends on the
    kinds of records, not on the changes.
    """
    log_entries = LogEntry.objects.filter(action_time__gte=since, action_time__lt=before)
    events = Event.objects.filter(at__gte=since, at__lt=before, actor__in=select_people())
    events = events.filter(kind__in=administrative_kinds())
    if query:
        log_entries = log_entries.filter(
            Q(user__username__icontains=query) | Q(object_repr__icontains=query)
        )
        events = events.filter(Q(actor__icontains=query) | Q(target_label__icontains=query))
    log_entries = log_entries.select_related("user", "content_type")
    log_entries = log_entries.order_by("-action_time", "-pk")
    # By time, which has no index, the database finds the few events by their kinds.
    events = events.order_by("-at", "-pk")

    changes = _join([*log_entries[:_MOST_READ]], [*events[:_MOST_READ]])
    changes.sort(key=lambda change: change.entry.at, reverse=True)
    page = changes[:PAGE_SIZE]
    for change in changes[PAGE_SIZE:]:
        # Changes of the same moment stay on one page: the next one begins before it.
        if change.entry.at != page[-1].entry.at:
            break
        page.append(change)
    _link_records(page)
    return page, page[-1].entry.at if len(page) < len(changes) else None


def _join(log_entries: Iterable[LogEntry], events: list[Event]) -> list[AdminChange]:
    """Return a change for each log entry, with its events, and for each event without one."""
    events_by_actor: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        events_by_actor[event.actor].append(event)
    changes = []
    for log_entry in log_entries:
        events_of_actor = events_by_actor[log_entry.user.get_username()]
        changes.append(_logged_change(log_entry, events_of_actor))
    for remaining_events in events_by_actor.values():
        for event in remaining_events:
            target = (event.target_type, event.target_id)
            kind = name_of_kind(_model_of(event.target_type), event.target_type)
            changes.append(AdminChange(entry_of_event(event), event.target_label, kind, target))
    return changes


def _logged_change(log_entry: LogEntry, events: list[Event]) -> AdminChange:
    """Return the change of a log entry. Removes the events of the same save from the list.

    Their events about other records become lines of the change.
    """
    label = ""
    kind = "–"
    if log_entry.content_type:
        label = f"{log_entry.content_type.app_label}.{log_entry.content_type.model}"
        kind = name_of_kind(log_entry.content_type.model_class(), log_entry.content_type.name)
    target = (label, str(log_entry.object_id))
    events_of_record = []
    for event in events:
        if (event.target_type, event.target_id) == target:
            events_of_record.append(event)
    own_event = take_event_of_change(log_entry, events_of_record)
    if own_event:
        events.remove(own_event)
    entry = entry_of_log(log_entry, own_event)
    for other in [*events]:
        if abs(other.at - log_entry.action_time) < SAME_CHANGE_WITHIN:
            events.remove(other)
            done = str(capfirst(what_was_done(other)))
            entry.changes.append(Change(other.target_label, "", done))
            entry.reason = entry.reason or other.reason
    return AdminChange(entry, log_entry.object_repr, kind, target)


def _model_of(label: str) -> type[Model] | None:
    try:
        return apps.get_model(label)
    except (LookupError, ValueError):  # of an app that is no longer installed
        return None


def name_of_kind(model: type[Model] | None, name: str) -> str:
    """Return the kind of a record as the lists of the back office name it; else `name`."""
    model_admin: Any = admin.site._registry.get(model) if model else None
    is_named = hasattr(model_admin, "name_of_record")
    if is_named:
        return str(model_admin.name_of_record)
    return str(model._meta.verbose_name) if model else name


def _link_records(changes: Iterable[AdminChange]) -> None:
    """Set the addresses of records that still exist, with a query for each kind of record."""
    keys: dict[str, set[str]] = defaultdict(set)
    for change in changes:
        label, key = change.target
        keys[label].add(key)
    addresses: dict[Target, str] = {}
    for label, keys_of_kind in keys.items():
        model = _model_of(label)
        if model is None:
            continue
        for record in model._base_manager.filter(pk__in=keys_of_kind):
            addresses[label, str(record.pk)] = _address_of(record)
    for change in changes:
        change.url = addresses.get(change.target, "")


def _address_of(record: Any) -> str:
    """Return the page of the portal about a record; else its page of the back office."""
    if hasattr(record, "get_absolute_url"):
        return str(record.get_absolute_url())
    return address_of_record(record._meta.label, record.pk)
