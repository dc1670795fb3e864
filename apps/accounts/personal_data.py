"""What the portal holds about a person: to hand it over, and to remove it.

Rows that exist for the person alone are deleted: roles, tokens, settings, notifications, views.
What the person did for production stays, since signatures and figures rest on it, under a name that
says nothing. Texts that people wrote stay as they are, and so do the logins that clusters report
with their jobs.
"""

import base64
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.apps import apps
from django.db import models, transaction
from django.db.models import Q, QuerySet

from apps.accounts.models import Principal, User
from apps.core.domain.events import publish, rename_in_events
from apps.core.errors import NotAllowed
from apps.core.models import Event

#: Text columns of this length have names of users, so that a record outlives its user.
NAME_LENGTH = 150
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
def remove_person(user: User, *, by: Principal, at: datetime) -> Removal:
    """Delete what exists for a person alone, and the name in everything else.

    The account stays, without a name and without access. Raises `NotAllowed` for the last active
    superuser.
    """
    user = User.objects.select_for_update().get(pk=user.pk)
    others = User.objects.filter(is_superuser=True, is_active=True).exclude(pk=user.pk)
    if user.is_superuser and user.is_active and not others.exists():
        raise NotAllowed("This is the last active superuser: make another one first.")
    removal = Removal(f"former-user-{user.pk}")
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
