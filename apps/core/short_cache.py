"""Results that pages share for a moment, and do without if Redis is down."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from django.core.cache import cache

Result = TypeVar("Result")


def kept(key: str) -> Any:
    """Return what is kept under this key; None if nothing is, or if Redis is down."""
    with suppress(Exception):
        return cache.get(key)
    return None


def cached_for(seconds: int, key: str, make: Callable[[], Result]) -> Result:
    """Return what `make` returned for this key, `seconds` ago at most; else call it.

    Without Redis, it is called each time. A result of None is not kept.
    """
    result: Result | None = kept(key)
    if result is None:
        result = make()
        with suppress(Exception):
            cache.set(key, result, seconds)
    return result
