"""Parts of experiment packs that other apps read and apply, such as recovery rules."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from django.conf import settings

from apps.accounts.models import Experiment, Principal
from apps.core.domain.plugins import Registry


@dataclass(frozen=True, slots=True)
class EntryFault:
    """A fault in an entry of a part; `field` is its path inside the entry, empty: all of it."""

    number: int
    field: str
    message: str


@dataclass(frozen=True, slots=True)
class ReadPart:
    """The content of a part, which only the part itself understands, and its faults."""

    content: Any
    faults: list[EntryFault] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class PartEffect:
    """What applying a part changes, as texts for people."""

    added: list[str]
    changed: list[str]
    removed: list[str]


class PackPart(Protocol):
    """A plugin that owns a part of packs: a list of entries, each with some of `fields`."""

    #: Maximum number of entries.
    most: int
    fields: Sequence[str]

    def read(
        self, entries: Sequence[tuple[int, Mapping[str, Any]]], *, experiment: Experiment
    ) -> ReadPart:
        """Read and check numbered entries. Stores nothing; the number of queries is fixed."""

    def effect_of(self, content: Any, *, experiment: Experiment) -> PartEffect:
        """Compare the content of a part without faults with what is in force."""

    def apply(
        self, content: Any, *, experiment: Experiment, by: Principal, at: datetime, reason: str
    ) -> None:
        """Put the content into force, in the caller's transaction."""


PACK_PARTS: Registry[PackPart] = Registry("opsportal.pack_parts", settings.PACK_PARTS)
