"""A registry for all kinds of plugins: built-ins by dotted path, others by entry point."""

import inspect
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib import import_module, metadata
from importlib.metadata import EntryPoint, EntryPoints
from typing import Any, Generic, TypeVar

log = logging.getLogger(__name__)

T = TypeVar("T")

#: All registries of the process, for the health page and the system check.
REGISTRIES: list["Registry[object]"] = []


class UnknownPlugin(LookupError):
    """The plugin is missing or broken; the message names it and lists the known ones."""


def first_paragraph(function: Callable[..., object]) -> str:
    """Return the first paragraph of a function's docstring in one line, as its description."""
    paragraph, _, _ = (inspect.getdoc(function) or "").partition("\n\n")
    return paragraph.replace("\n", " ")


def entry_points(group: str) -> EntryPoints:
    """Return the entry points of a group in all installed packages."""
    points: EntryPoints = _installed().select(group=group)
    return points


@cache
def _installed() -> Any:
    # Reading the metadata takes as long for one group as for all of them.
    return metadata.entry_points()


@dataclass
class Registry(Generic[T]):
    """Plugins of one kind by name, imported on first use.

    A duplicate or broken plugin is reported in `problems` and is never fatal.
    """

    group: str
    builtins: Mapping[str, str]
    problems: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        REGISTRIES.append(self)  # type: ignore[arg-type]

    @cached_property
    def _found(self) -> dict[str, EntryPoint]:
        by_name = {name: EntryPoint(name, path, self.group) for name, path in self.builtins.items()}
        for entry in sorted(entry_points(group=self.group), key=lambda e: (e.name, e.value)):
            if entry.name in by_name:
                self.problems[entry.name] = (
                    f"{entry.value} has the same name as {by_name[entry.name].value}: ignored"
                )
                log.error("plugin %s of %s: %s", entry.name, self.group, self.problems[entry.name])
            else:
                by_name[entry.name] = entry
        return by_name

    def names(self) -> list[str]:
        """Return the names of all plugins, including broken ones."""
        return sorted(self._found)

    def get(self, name: str) -> T:
        """Return the plugin of this name. Raises `UnknownPlugin`."""
        if name not in self._found:
            raise UnknownPlugin(
                f"no plugin of {self.group} is named {name!r}; there are: {', '.join(self.names())}"
            )
        entry = self._found[name]
        try:
            module, _, attribute = entry.value.partition(":")
            plugin: T = getattr(import_module(module), attribute)
            return plugin
        except Exception as error:
            # A plugin may raise anything on import.
            self.problems[name] = f"{entry.value} cannot be loaded: {type(error).__name__}: {error}"
            log.exception("plugin %s of %s cannot be loaded", name, self.group)
            raise UnknownPlugin(self.problems[name]) from error

    def working(self) -> dict[str, T]:
        """Load every plugin and return those that work: built-ins in order, then others by name."""
        loaded = {}
        for name in self._found:
            with suppress(UnknownPlugin):
                loaded[name] = self.get(name)
        return loaded
