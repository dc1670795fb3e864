"""Who is told of which events. Apps register in their `subscribers.py`; delivery is in `core.domain.outbox`."""

from collections.abc import Callable

from apps.core.models import Event

Handler = Callable[[Event], None]

_handlers: dict[str, Handler] = {}
_by_kind: dict[str, list[str]] = {}
#: Takes the events of processes that do not know who is told, and tells those who are.
SPREAD = "core.spread"
_deferred: list[str] = []


def subscribe(name: str, *kinds: str) -> Callable[[Handler], Handler]:
    """Register a function for events of these kinds under a lasting name, such as `diagnosis.queue_harvests`.

    `request.*` stands for all kinds that begin with `request.`.
    The function may be called again for the same event only if its transaction was rolled back.
    """

    def register(handler: Handler) -> Handler:
        if name in _handlers:
            raise ValueError(f"two subscribers are named {name}")
        _handlers[name] = handler
        for kind in kinds:
            _by_kind.setdefault(kind, []).append(name)
        return handler

    return register


def defer_to_workers() -> None:
    """Do not know the subscribers in this process: a worker, which does, finds each event within seconds."""
    _deferred[:] = [SPREAD]


def is_deferred() -> bool:
    return bool(_deferred)


def subscribers_of(kind: str) -> list[str]:
    """Return the names of the subscribers of events of this kind."""
    if _deferred:
        return _deferred
    return _by_kind.get(kind, []) + _by_kind.get(f"{kind.partition('.')[0]}.*", [])


def handler(name: str) -> Handler:
    """Return the subscriber of this name. Raises `LookupError` when it is registered no more."""
    try:
        return _handlers[name]
    except KeyError:
        raise LookupError(f"no subscriber is named {name}") from None
