"""Results that pages share for a moment, and do without if Redis is down."""

from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from django.core.cache import cache

Result = TypeVar("Result")


def cached_for(seconds: int, key: str, make: Callable[[], Result]) -> Result:
    """Return what `make` returned for this key, `seconds` ago at most; else call it.

    Without Redis, it is called each time. A result of None is not kept.
    """
    result: Result | None = None
    with suppress(Exception):
        result = cache.get(key)
    if result is None:
        result = make()
        with suppress(Exception):
            cache.set(key, result, seconds)
    return result
