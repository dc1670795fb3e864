"""The history of a record: who changed what, from which value to which, and when.

Changes in the admin are stored by Django with their values; changes by pages, commands and the API
are events.
"""

import difflib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from itertools import chain
from operator import attrgetter
from typing import Any

from django import forms
from django.conf import settings
from django.contrib.admin.models import LogEntry
from django.contrib.admin.options import get_content_type_for_model
from django.db import models
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.text import capfirst, get_text_list

from apps.core.admin.lists import yes_or_no
from apps.core.domain.event_kinds import kind_of, value_in_words, what_was_done
from apps.core.domain.events import events_of, select_people
from apps.core.domain.masked_names import MASKED_NAMES
from apps.core.domain.secrets.masking import Masker
from apps.core.models import Event
from apps.core.web.form_errors import label_of

#: At most this many entries of each kind are read; the audit trail has all events.
MOST = 200
#: More events of the portal than this are only shown on demand: a cluster has thousands each day.
FEW_OF_THE_PORTAL = 10
#: Changes by people are searched among this many events of a record: about a month of a cluster.
MOST_SEARCHED = 100_000
#: A page of the back office stores its change and its event at almost the same time.
SAME_CHANGE_WITHIN = timedelta(seconds=5)
_LONGEST_VALUE = 500
_NOTHING = "–"
_HIDDEN = "(hidden)"
_SECRET_NAME = re.compile(MASKED_NAMES)


@dataclass(frozen=True)
class Change:
    """One field with its values before and after; long text has its changed `lines` instead.

    `old` is empty in a record that was added.
    """

    field: str = ""
    old: str = ""
    new: str = ""
    lines: Sequence[str] = ()


@dataclass
class HistoryEntry:
    """One change of a record, by a person or a component of the portal."""

    at: datetime
    by: str
    what: str
    changes: list[Change] = field(default_factory=list)
    reason: str = ""


@dataclass
class History:
    """The changes of a record, newest first, and how many events of the portal are left out."""

    entries: list[HistoryEntry]
    left_out: int = 0

    @property
    def may_be_longer(self) -> bool:
        return len(self.entries) >= MOST

    @property
    def is_left_out_counted(self) -> bool:
        return self.left_out < MOST


def with_values(
    message: list[dict[str, Any]], form: Any, formsets: Iterable[Any] | None
) -> list[dict[str, Any]]:
    """Add the old and new values to Django's message about an addition or a change."""
    added_forms = []
    changed_forms = []
    for formset in formsets or ():
        forms_by_object = {id(inline.instance): inline for inline in formset.forms}
        added_forms += [forms_by_object[id(record)] for record in formset.new_objects]
        changed_forms += [forms_by_object[id(record)] for record, _ in formset.changed_objects]

    added = [part["added"] for part in message if "added" in part]
    changed = [part["changed"] for part in message if "changed" in part]
    # The message is about the form itself, too, unless only rows of its tables differ.
    if len(added) > len(added_forms):
        added_forms.insert(0, form)
    if len(changed) > len(changed_forms):
        changed_forms.insert(0, form)

    for part, added_form in zip(added, added_forms, strict=True):
        part["values"] = list(chain.from_iterable(_first_values(added_form)))
    for part, changed_form in zip(changed, changed_forms, strict=True):
        part["values"] = list(chain.from_iterable(_field_changes(changed_form)))
    return message


def message_about_addition(values: Iterable[tuple[str, str]]) -> list[dict[str, Any]]:
    """Return Django's message about a new record that no form of one record describes."""
    changes = []
    for label, value in values:
        if value:
            changes.append(_addition(label, value))
    return [{"added": {"values": changes}}]


def _field_changes(form: Any) -> Iterator[list[dict[str, Any]]]:
    for name in form.changed_data:
        if name not in form.fields:
            continue
        form_field = form.fields[name]
        label = label_of(form_field, name)
        old = form.get_initial_for_field(form_field, name)
        new = form.cleaned_data.get(name)
        if _is_secret(form_field, name):
            yield [{"field": label, "old": _HIDDEN, "new": _HIDDEN}]
        elif isinstance(old, dict) and isinstance(new, dict):
            yield _changes_of_object(label, old, new)
        else:
            yield [_change(label, _in_words(form_field, old), _in_words(form_field, new))]


def _first_values(form: Any) -> Iterator[list[dict[str, Any]]]:
    """Return the values of a new record, without its empty fields."""
    for name, form_field in form.fields.items():
        value = form.cleaned_data.get(name)
        is_key = name in (form._meta.model._meta.pk.name, "DELETE")
        is_link = isinstance(form_field, forms.models.InlineForeignKeyField)
        if value in (None, "", [], {}) or is_key or is_link:
            continue
        label = label_of(form_field, name)
        if _is_secret(form_field, name):
            yield [_addition(label, _HIDDEN)]
        elif isinstance(value, dict):
            changes = _changes_of_object(label, {}, value)
            yield [{**change, "old": ""} for change in changes]
        else:
            text = _in_words(form_field, value)
            yield [] if text == _NOTHING else [_addition(label, text)]


def _is_secret(form_field: forms.Field, name: str) -> bool:
    is_typed_unseen = isinstance(form_field.widget, forms.PasswordInput)
    return is_typed_unseen or bool(_SECRET_NAME.search(name))


def _addition(label: str, text: str) -> dict[str, Any]:
    shown = _without_secrets(text)
    if "\n" in shown:
        lines = [line[:_LONGEST_VALUE] for line in shown.splitlines()]
        return {"field": label, "lines": lines[:MOST]}
    return {"field": label, "new": shown[:_LONGEST_VALUE]}


def _changes_of_object(
    label: str, old: dict[str, Any], new: dict[str, Any]
) -> list[dict[str, Any]]:
    """Return a change for each key of an object of JSON whose value differs."""
    changes = []
    for key in sorted(old.keys() | new.keys()):
        if old.get(key) == new.get(key):
            continue
        if _SECRET_NAME.search(key):
            changes.append({"field": f"{label}: {key}", "old": _HIDDEN, "new": _HIDDEN})
        else:
            changes.append(_change(f"{label}: {key}", _json(old.get(key)), _json(new.get(key))))
    return changes


def _change(label: str, old: str, new: str) -> dict[str, Any]:
    """Return a change without secrets; of text with several lines, only those that differ."""
    old = _without_secrets(old)
    new = _without_secrets(new)
    if "\n" in old or "\n" in new:
        lines = []
        for line in difflib.unified_diff(old.splitlines(), new.splitlines(), n=0, lineterm=""):
            if not line.startswith(("---", "+++", "@@")):
                lines.append(line[:_LONGEST_VALUE])
        return {"field": label, "lines": lines[:MOST]}
    return {"field": label, "old": old[:_LONGEST_VALUE], "new": new[:_LONGEST_VALUE]}


def _without_secrets(text: str) -> str:
    masker = Masker(names=MASKED_NAMES, key=settings.SECRET_KEY.encode())
    return "\n".join(masker.mask_text(line) for line in text.splitlines())


def _json(value: Any) -> str:
    if value in (None, ""):
        return _NOTHING
    if isinstance(value, str):
        return value
    return json.dumps(_without_secret_keys(value), ensure_ascii=False, sort_keys=True, default=str)


def _without_secret_keys(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_secret_keys(part) for part in value]
    if not isinstance(value, dict):
        return value
    shown = {}
    for key, part in value.items():
        shown[key] = _HIDDEN if _SECRET_NAME.search(key) else _without_secret_keys(part)
    return shown


def _in_words(form_field: forms.Field, value: Any) -> str:
    """Write a value as the form shows it."""
    if isinstance(form_field, forms.ModelMultipleChoiceField):
        return ", ".join(sorted(map(str, value or []))) or _NOTHING
    if value in (None, "", [], {}):
        return _NOTHING
    if isinstance(form_field, forms.ModelChoiceField):
        return _chosen_record(form_field, value)
    if isinstance(form_field, forms.ChoiceField):
        return str(dict(form_field.widget.choices).get(value, value))
    if isinstance(value, list | tuple | set):
        return ", ".join(map(str, value))
    return _plain(form_field, value)


def _chosen_record(form_field: forms.ModelChoiceField, value: Any) -> str:
    """Write the record of a value, which is its key before the change."""
    if isinstance(value, models.Model) or form_field.queryset is None:
        return str(value)
    name = form_field.to_field_name or "pk"
    return str(form_field.queryset.filter(**{name: value}).first() or value)


def _plain(form_field: forms.Field, value: Any) -> str:
    writers: list[tuple[type, Callable[[Any], str]]] = [
        (bool, yes_or_no),
        (datetime, _write_time),
        (date, date_format),
        (dict, _json),
    ]
    for kind, write in writers:
        if isinstance(value, kind):
            return write(value)
    return str(form_field.prepare_value(value))


def _write_time(at: datetime) -> str:
    local = timezone.localtime(at)
    return f"{date_format(local, 'DATETIME_FORMAT')} {local:%Z}"


def history_of(record: models.Model, *, with_portal: bool = False) -> History:
    """Return the changes of a record: what people did, and what the portal did if it is little.

    With `with_portal`, all that the portal did is among them, too.
    """
    logged = LogEntry.objects.filter(
        object_id=str(record.pk), content_type=get_content_type_for_model(record)
    ).select_related("user")
    stored = [*logged.order_by("-action_time", "-pk")[:MOST]]
    recent = _recent_events(record)
    by_people = [*recent.filter(actor__in=select_people())[:MOST]]
    by_portal = [*recent.exclude(actor__in=select_people())[:MOST]]
    left_out = 0
    if len(by_portal) > FEW_OF_THE_PORTAL and not with_portal:
        left_out = len(by_portal)
        by_portal = []

    entries = []
    for log_entry in stored:
        entries.append(entry_of_log(log_entry, take_event_of_change(log_entry, by_people)))
    entries += [entry_of_event(event) for event in chain(by_people, by_portal)]
    return History(sorted(entries, key=attrgetter("at"), reverse=True), left_out)


def _recent_events(record: models.Model) -> models.QuerySet[Event]:
    """Return the events of a record, newest first, without those before `MOST_SEARCHED`."""
    newest = events_of(record).order_by("-id")
    last = newest.values_list("id", flat=True)[MOST_SEARCHED : MOST_SEARCHED + 1].first()
    return newest.filter(id__gt=last) if last else newest


def take_event_of_change(log_entry: LogEntry, events: list[Event]) -> Event | None:
    """Take from the list the event of the same change: by the same person, at the same time."""
    same = []
    for event in events:
        is_near = abs(event.at - log_entry.action_time) < SAME_CHANGE_WITHIN
        if is_near and event.actor == log_entry.user.get_username():
            same.append(event)
    if not same:
        return None
    # A page that adds a record with others first creates it.
    event = same[-1] if log_entry.is_addition() else same[0]
    events.remove(event)
    return event


def entry_of_log(log_entry: LogEntry, event: Event | None = None) -> HistoryEntry:
    """Return the entry of a change in the admin, with the words and reason of its event."""
    entry = HistoryEntry(log_entry.action_time, log_entry.user.get_username(), "")
    sentences = []
    for part in parts_of_message(log_entry):
        sentences.append(_sentence(part))
        for detail in part.values():
            entry.changes += [Change(**values) for values in detail.get("values", ())]
    entry.what = " ".join(sentences) or log_entry.get_change_message()
    if log_entry.is_deletion():
        entry.what = "Deleted."
    if event:
        entry.what = capfirst(what_was_done(event))
        entry.reason = event.reason
        entry.changes = entry.changes or _changes_of_event(event)
    return entry


def parts_of_message(log_entry: LogEntry) -> list[dict[str, Any]]:
    """Return the parts of Django's message; none of one that is plain text."""
    try:
        parts = json.loads(log_entry.change_message)
    except json.JSONDecodeError:
        return []
    return parts if isinstance(parts, list) else []


def _sentence(part: dict[str, Any]) -> str:
    """Write a part of Django's message: `Changed cluster login “ana on alps”: Login.`"""
    [(verb, detail)] = part.items()
    name = f" {detail['name']} “{detail['object']}”" if "name" in detail else ""
    fields = "" if "values" in detail else get_text_list(detail.get("fields", []), "and")
    separator = ": " if name and fields else " " if fields else ""
    return f"{capfirst(verb)}{name}{separator}{fields}."


def entry_of_event(event: Event) -> HistoryEntry:
    changes = _changes_of_event(event)
    what = str(capfirst(what_was_done(event)))
    return HistoryEntry(event.at, event.actor, what, changes, event.reason)


def _changes_of_event(event: Event) -> list[Change]:
    """Return the old and new value of an event, unless its sentence has them."""
    kind = kind_of(event)
    is_said = "{old}" in kind.did or "{new}" in kind.did
    if is_said or not (event.old or event.new):
        return []
    old = value_in_words(event, event.old) or _NOTHING
    new = value_in_words(event, event.new) or _NOTHING
    return [Change("", old, new)]
