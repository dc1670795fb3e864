"""Subscribers of events. Apps register them in `subscribers.py`; `core.domain.outbox` delivers."""

from collections.abc import Callable
from functools import cache

from django.utils.module_loading import autodiscover_modules

from apps.core.models import Event

Handler = Callable[[Event], None]

_handlers: dict[str, Handler] = {}
_by_kind: dict[str, list[str]] = {}


def subscribe(name: str, *kinds: str) -> Callable[[Handler], Handler]:
    """Register a function for events of these kinds under a stable name.

    Names look like `diagnosis.queue_harvests`. `request.*` matches all kinds that begin
    with `request.`. The function is called again for the same event only if its transaction was
    rolled back.
    """

    def register(handler: Handler) -> Handler:
        if name in _handlers:
            raise ValueError(f"two subscribers are named {name}")
        _handlers[name] = handler
        for kind in kinds:
            _by_kind.setdefault(kind, []).append(name)
        return handler

    return register


@cache
def load_subscribers() -> None:
    """Import the subscribers of all apps, which register themselves."""
    autodiscover_modules("subscribers")


def subscribers_of(kind: str) -> list[str]:
    """Return the names of the subscribers of events of this kind."""
    load_subscribers()
    return _by_kind.get(kind, []) + _by_kind.get(f"{kind.partition('.')[0]}.*", [])


def handler(name: str) -> Handler:
    """Return the subscriber of this name. Raises `LookupError` if it is no longer registered."""
    load_subscribers()
    try:
        return _handlers[name]
    except KeyError:
        raise LookupError(f"no subscriber is named {name}") from None
