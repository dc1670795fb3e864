"""State transitions by a declared table, safe against concurrent users."""

from collections.abc import Mapping, Set
from typing import Any, TypeVar

from django.db import models

from apps.core.errors import InvalidTransition, StaleState

S = TypeVar("S", bound=str)


def move(
    obj: models.Model,
    *,
    to: S,
    transitions: Mapping[S, Set[S]],
    field: str = "state",
    **changes: Any,
) -> str:
    """Compare-and-set `field` to `to`, and return the old state.

    Other `changes` are in the same statement. Raises `InvalidTransition` if the table has no such
    move, `StaleState` if the row has changed since it was read. Call it in the transaction that
    publishes the event.
    """
    old = getattr(obj, field)
    if to not in transitions.get(old, frozenset()):
        raise InvalidTransition(f"{obj} is {_text(old)}, so it cannot become {_text(to)}.")
    manager = type(obj)._default_manager
    if manager.filter(pk=obj.pk, **{field: old}).update(**{field: to}, **changes) != 1:
        raise StaleState(
            f"{obj} was changed by another user in the meantime. Reload it and try again."
        )
    for name, value in {field: to, **changes}.items():
        setattr(obj, name, value)
    return str(old)


def _text(state: str) -> str:
    return str(state).replace("_", " ")
