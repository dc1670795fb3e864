"""Every route of the project, found in the URL configuration itself."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.urls import URLPattern, URLResolver, get_resolver


@dataclass(frozen=True)
class Route:
    """One route: its name with namespaces (or its pattern,
    where it has none) and the names of its parameters.
    """

    name: str
    parameters: tuple[str, ...]


def all_routes() -> list[Route]:
    routes = {Route(name, parameters) for name, parameters, _ in _walk(get_resolver(), "", "", ())}
    return sorted(routes, key=lambda route: route.name)


def all_views() -> list[tuple[str, Any]]:
    """Return the view of each route by the route's name."""
    return [(name, view) for name, _, view in _walk(get_resolver(), "", "", ())]


def _walk(
    resolver: URLResolver, namespace: str, path: str, parameters: tuple[str, ...]
) -> Iterator[tuple[str, tuple[str, ...], Any]]:
    for entry in resolver.url_patterns:
        pattern = path + str(entry.pattern)
        names = (*parameters, *(entry.pattern.converters or entry.pattern.regex.groupindex))
        if isinstance(entry, URLResolver):
            inner = f"{namespace}{entry.namespace}:" if entry.namespace else namespace
            yield from _walk(entry, inner, pattern, names)
        elif isinstance(entry, URLPattern):
            yield f"{namespace}{entry.name or pattern}", names, entry.callback
