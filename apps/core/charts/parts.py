"""The elements of a chart."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Series:
    """A series of values: its name in titles and the table, and its kind, which sets the colour."""

    name: str
    kind: str


@dataclass(frozen=True)
class Bin:
    """A bar, or a point of a line: label, value per series, and URL of the list that it counts."""

    label: str
    values: Sequence[float]
    address: str = ""
    rate: float | None = None


@dataclass(frozen=True)
class Tick:
    """A tick of the axis at the left edge of a bin.

    The label of a day is bold; minor ticks are hidden on phones.
    """

    at: float
    label: str
    is_day: bool = False
    is_minor: bool = False


@dataclass(frozen=True)
class Band:
    """An event shown below the bars, such as an outage; `start` and `end` are in bins."""

    label: str
    kind: str
    start: float
    end: float
    address: str = ""
    note: str = ""
    row: int = 0


@dataclass(frozen=True)
class Cell:
    """A cell of a heat map; without a value if there was too little data."""

    title: str
    value: float | None
    address: str = ""


@dataclass(frozen=True)
class Part:
    """A part of a whole: its kind, its value in any unit, its title and the URL of its list."""

    kind: str
    value: float
    title: str
    address: str = ""
