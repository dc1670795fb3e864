"""What the portal holds about a person: to hand it over, and to remove it.

Rows that exist for the person alone are deleted: roles, tokens, settings, notifications, views.
What the person did for production stays, since signatures and figures rest on it, under a name that
says nothing. Texts that people wrote stay as they are, and so do the logins that clusters report
with their jobs.
"""

import base64
import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import IO, Any

from django.apps import apps
from django.contrib.admin.models import LogEntry
from django.contrib.contenttypes.models import ContentType
from django.core.serializers.json import DjangoJSONEncoder
from django.db import models, transaction
from django.db.models import Q, QuerySet
from django.utils.text import capfirst

from apps.accounts.models import Experiment, Principal, Role, User
from apps.core.admin.record_history import parts_of_message
from apps.core.domain.events import publish, rename_in_events
from apps.core.errors import NotAllowed
from apps.core.models import Event

#: Text columns of this length have names of users, so that a record outlives its user.
NAME_LENGTH = 150
#: What can be a user name within a text.
_USER_NAME = re.compile(r"[\w.@+-]+")
#: What the log of the back office has in place of changes of a removed account.
_VALUES_REMOVED = "The values were removed with the person."
#: Columns that let their reader act as the person.
_SECRETS = frozenset({"password", "digest", "token_key", "nonce", "feed_name", "fingerprint"})
#: Rows of the login guard, by user name.
_LOGIN_TABLES = ("axes.AccessAttempt", "axes.AccessFailureLog", "axes.AccessLog")


@dataclass
class Removal:
    """What a removal changed: the name that records have now, and rows by table."""

    new_name: str
    deleted: Counter[str] = field(default_factory=Counter)
    renamed: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class RemovalPreview:
    """What a removal would delete and keep: models with their numbers of rows, up to a limit."""

    deleted: list[tuple[type[models.Model], int]]
    kept: list[tuple[type[models.Model], int]]


def rows_about(user: User) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each row about a person once: the label of its model, and its columns without secrets.

    Bytes are in Base64.
    """
    for model in _models():
        condition = _condition(model, user)
        if condition is not None:
            rows = model._base_manager.filter(condition).order_by("pk").distinct()
            columns = [
                column.attname
                for column in model._meta.concrete_fields
                if column.name not in _SECRETS
            ]
            for row in rows.values(*columns).iterator(chunk_size=1_000):
                yield model._meta.label, {name: _plain(value) for name, value in row.items()}


@transaction.atomic
def export_person(user: User, file: IO[str], *, by: Principal, at: datetime) -> int:
    """Write each row about a person as one line of JSON; return their number."""
    count = 0
    for table, columns in rows_about(user):
        file.write(json.dumps({"table": table, **columns}, cls=DjangoJSONEncoder) + "\n")
        count += 1
    publish(kind="user.exported", target=user, by=by, at=at)
    return count


def preview_removal(user: User, *, most_counted: int) -> RemovalPreview:
    """Count what a removal would delete, and what the person did that would stay.

    Each count ends at one above `most_counted`. Records that have the name as text alone, such as
    events, are not counted: there may be millions.
    """
    deleted = []
    kept = []
    for model in _models():
        own = _own_rows(model, user)
        if own is not None:
            deleted.append((model, own))
        elif condition := _referring_rows(model, user):
            kept.append((model, model._base_manager.filter(condition)))
    return RemovalPreview(deleted=_counts(deleted, most_counted), kept=_counts(kept, most_counted))


@transaction.atomic
def remove_person(user: User, *, by: Principal, at: datetime) -> Removal:
    """Delete what exists for a person alone, and the name in everything else.

    The account stays, without a name and without access. Raises `NotAllowed` for oneself and for
    the last active superuser.
    """
    user = User.objects.select_for_update().get(pk=user.pk)
    if user == by:
        raise NotAllowed("You cannot remove yourself. Ask another admin.")
    others = User.objects.filter(is_superuser=True, is_active=True).exclude(pk=user.pk)
    if user.is_superuser and user.is_active and not others.exists():
        raise NotAllowed("This is the last active superuser: make another one first.")
    removal = Removal(_former_name(user))
    removal.renamed[LogEntry._meta.label] = _rename_in_admin_log(user, removal.new_name)
    removal.renamed[LogEntry._meta.label] += _rename_in_logged_lists(user, removal.new_name)
    for model in _models():
        own = _own_rows(model, user)
        if own is not None:
            _, by_table = own.delete()
            removal.deleted.update(by_table)
    for model in _models():
        for column in _name_columns(model):
            rows = model._base_manager.filter(**{column: user.username})
            removal.renamed[model._meta.label] += rows.update(**{column: removal.new_name})
    removal.renamed[Event._meta.label] = rename_in_events(user, removal.new_name)
    _forget(user, removal.new_name)
    publish(kind="user.removed", target=user, by=by, at=at)
    return removal


def is_removed(user: User) -> bool:
    """Return whether a person was removed, so that the account has no name any more."""
    return not user.is_active and user.username == _former_name(user)


def _former_name(user: User) -> str:
    return f"former-user-{user.pk}"


def _models() -> list[type[models.Model]]:
    return apps.get_models(include_auto_created=True)


def _is_ours(model: type[models.Model]) -> bool:
    return model._meta.app_config is not None and model._meta.app_config.name.startswith("apps.")


def _references(model: type[models.Model]) -> list["models.ForeignKey[Any, Any]"]:
    """Return the columns of a model that refer to a user."""
    columns = []
    for column in model._meta.concrete_fields:
        if isinstance(column, models.ForeignKey) and column.related_model is User:
            columns.append(column)
    return columns


def _name_columns(model: type[models.Model]) -> list[str]:
    """Return the columns of a model that have names of users; events have their own guard."""
    if model in (User, Event) or not _is_ours(model):
        return []
    columns = []
    for column in model._meta.concrete_fields:
        if isinstance(column, models.CharField) and column.max_length == NAME_LENGTH:
            columns.append(column.name)
    return columns


def _own_rows(model: type[models.Model], user: User) -> QuerySet[Any] | None:
    """Return the rows of a model that exist for the person alone; None if it has no such rows.

    Those are the rows that are deleted with their user; who created a row is a record of it.
    """
    if model._meta.label in _LOGIN_TABLES:
        return model._base_manager.filter(username=user.username)
    condition = Q()
    for column in _references(model) if _is_ours(model) else ():
        is_own = column.remote_field.on_delete is models.CASCADE and column.name != "created_by"
        if is_own:
            condition |= Q(**{column.name: user})
    return model._base_manager.filter(condition) if condition else None


def _referring_rows(model: type[models.Model], user: User) -> Q | None:
    """Return what rows of the portal that refer to a person fulfil; None if the model cannot."""
    condition = Q()
    for column in _references(model) if _is_ours(model) else ():
        condition |= Q(**{column.name: user})
    return condition or None


def _counts(
    rows_by_model: list[tuple[type[models.Model], QuerySet[Any]]], most_counted: int
) -> list[tuple[type[models.Model], int]]:
    """Return the models that have rows, sorted by name, with their numbers."""
    counts = []
    for model, rows in rows_by_model:
        count = rows.order_by()[: most_counted + 1].count()
        if count:
            counts.append((model, count))
    return sorted(counts, key=lambda pair: str(pair[0]._meta.verbose_name_plural))


def _rename_in_admin_log(user: User, new_name: str) -> int:
    """Replace the name in what the back office logged about the person; return in how many rows.

    The values of changes of the account itself, such as its e-mail address, are dropped.
    """
    models_about = [User, *(model for model in _models() if _own_rows(model, user) is not None)]
    kinds = ContentType.objects.get_for_models(*models_about)
    by_name = Q(object_repr__contains=user.username) | Q(change_message__contains=user.username)
    about_account = Q(content_type=kinds[User], object_id=str(user.pk))
    entries = LogEntry.objects.filter(content_type__in=kinds.values())
    count = 0
    for entry in entries.filter(by_name | about_account):
        is_account = (entry.content_type, entry.object_id) == (kinds[User], str(user.pk))
        entry.object_repr = _renamed(entry.object_repr, user.username, new_name)
        entry.change_message = _renamed(entry.change_message, user.username, new_name)
        if is_account:
            entry.change_message = _VALUES_REMOVED
        entry.save(update_fields=["object_repr", "change_message"])
        count += 1
    return count


def _rename_in_logged_lists(user: User, new_name: str) -> int:
    """Replace the name where the log of the back office lists people of another record.

    Those are the people of a new experiment and the members of a group. Other values of these
    records, such as the key of an experiment, may be the same word: they stay.
    """
    written = json.dumps(user.username)[1:-1]
    count = 0
    for model in _models():
        labels = _labels_of_people(model)
        if not labels:
            continue
        kind = ContentType.objects.get_for_model(model)
        for entry in LogEntry.objects.filter(content_type=kind, change_message__contains=written):
            parts = parts_of_message(entry)
            for part in parts:
                for detail in part.values():
                    _rename_in_values(detail.get("values", ()), labels, user.username, new_name)
            message = json.dumps(parts)
            if parts and message != entry.change_message:
                entry.change_message = message
                entry.save(update_fields=["change_message"])
                count += 1
    return count


def _labels_of_people(model: type[models.Model]) -> set[str]:
    """Return the labels of the logged values of a model that are user names."""
    if model is Experiment:
        return set(Role.labels)
    labels = set()
    for column in model._meta.many_to_many:
        if column.related_model is User:
            labels.add(str(capfirst(column.verbose_name)))
    return labels


def _rename_in_values(
    changes: list[dict[str, Any]], labels: set[str], name: str, new_name: str
) -> None:
    """Replace a user name in the old and new values of logged changes with one of the labels."""
    for change in changes:
        if change.get("field") not in labels:
            continue
        for side in ("old", "new"):
            if side in change:
                change[side] = _renamed(change[side], name, new_name)


def _renamed(text: str, name: str, new_name: str) -> str:
    """Replace a user name where it stands alone, also before a full stop: not within another."""

    def replace(match: re.Match[str]) -> str:
        word = match[0]
        if word == name:
            return new_name
        stop = "." * (len(word) - len(word.rstrip(".")))
        return new_name + stop if word == name + stop else word

    return _USER_NAME.sub(replace, text)


def _condition(model: type[models.Model], user: User) -> Q | None:
    """Return what rows of a model about a person fulfil; None if it has none."""
    if model is User:
        return Q(pk=user.pk)
    if model._meta.label in _LOGIN_TABLES:
        return Q(username=user.username)
    condition = Q()
    for column in _references(model):
        condition |= Q(**{column.name: user})
    for name in _name_columns(model):
        condition |= Q(**{name: user.username})
    if model is Event:
        condition |= Q(actor=user.username)
        condition |= Q(target_type=User._meta.label_lower, target_id=str(user.pk))
    return condition or None


def _forget(user: User, new_name: str) -> None:
    """Store the account without what identifies the person, and without access."""
    user.username = new_name
    user.first_name = user.last_name = user.email = user.time_zone = ""
    user.set_unusable_password()
    user.is_active = user.is_staff = user.is_superuser = user.link_by_name = False
    user.sign_on_subject = None
    user.last_login = user.visited_at = user.previous_visit_at = None
    user.save()


def _plain(value: Any) -> Any:
    if isinstance(value, bytes | memoryview):
        return base64.b64encode(value).decode()
    return value
