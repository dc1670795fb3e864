"""What a chart is drawn from."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Series:
    """What one colour of a chart counts: its name in titles and in the table, and its kind."""

    name: str
    kind: str


@dataclass(frozen=True)
class Bin:
    """One bar, or one point of a line: what it covers, a value per series,
    and the list that it counts.
    """

    label: str
    values: Sequence[float]
    address: str = ""
    rate: float | None = None


@dataclass(frozen=True)
class Tick:
    """A mark of the axis at the left edge of a bin.

    The name of a day is bold; a minor one goes on a phone.
    """

    at: float
    label: str
    is_day: bool = False
    is_minor: bool = False


@dataclass(frozen=True)
class Band:
    """What went on beside the bars, such as an outage: from bin to bin, in fractions of bins."""

    label: str
    kind: str
    start: float
    end: float
    address: str = ""
    note: str = ""
    row: int = 0


@dataclass(frozen=True)
class Cell:
    """One cell of a heat map; without a value there was too little to say."""

    title: str
    value: float | None
    address: str = ""


@dataclass(frozen=True)
class Part:
    """One part of a whole: its kind, its share in any unit, what it is, and its list."""

    kind: str
    value: float
    title: str
    address: str = ""
