"""Parameter scans: one request that runs its stages once for each combination of values.

Jobs and events of a stage are totals over all points; each point has an equal share of consecutive
jobs. Texts of a stage refer to a parameter as `{energy}`, and each point inserts its value.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from math import prod
from typing import Any

from apps.production.domain.content.model import RequestContent, StageContent, values_of

MAX_POINTS = 200
#: The maximum of the field. Longer texts are neither read nor cached.
MAX_CHARACTERS = 2_000
#: Texts of a stage that may refer to a parameter, besides its arguments.
TEXTS = ("release", "configuration", "input_dataset", "output_dataset")
_PARAMETER = re.compile(r"[a-z][a-z0-9_]{0,39}")
_VALUE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,59}")
_NAMED = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True)
class Point:
    """One combination of values. `index` counts from 0."""

    index: int
    values: Mapping[str, str]

    @property
    def number(self) -> int:
        return self.index + 1

    @property
    def label(self) -> str:
        return ", ".join(f"{name} = {value}" for name, value in self.values.items())

    def text(self, text: str) -> str:
        """Return a text with the values of this point."""
        return _NAMED.sub(lambda match: self.values.get(match[1], match[0]), text)


@dataclass(frozen=True)
class Scan:
    """The points of a scan, the last parameter varying fastest. No points if it has `faults`."""

    parameters: Mapping[str, tuple[str, ...]]
    points: tuple[Point, ...] = ()
    faults: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """The number of times that each stage runs: 1 without a scan."""
        return len(self.points) or 1

    def point_of(self, index: int, jobs: int | None) -> Point | None:
        """Return the point for a job of a stage with this number of jobs; None without a scan.

        `index` is the index of the job.
        """
        if not self.points:
            return None
        return self.points[min(index // self.jobs_each(jobs), len(self.points) - 1)]

    def jobs_each(self, jobs: int | None) -> int:
        """Return the number of jobs of a stage for each point."""
        return max(1, (jobs or 0) // self.count)


def read_scan(text: str) -> Scan:
    """Read lines such as `energy = 1, 2, 5`. Faults name their line."""
    if len(text) > MAX_CHARACTERS:
        return Scan({}, faults=(f"A scan has at most {MAX_CHARACTERS:,} characters.",))
    return _read_lines(text)


# Cached, because lists show the number of points of each request.
@lru_cache(maxsize=1_000)
def _read_lines(text: str) -> Scan:
    parameters: dict[str, tuple[str, ...]] = {}
    faults: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        name, _, value_list = (part.strip() for part in line.partition("="))
        values = [value.strip() for value in value_list.split(",")]
        if not _PARAMETER.fullmatch(name) or not value_list:
            faults.append(
                f"Line {number}: write a parameter and its values, such as energy = 1, 2, 5."
            )
        elif wrong := [value for value in values if not _VALUE.fullmatch(value)]:
            faults.append(
                f"Line {number}: “{wrong[0][:60]}” is not a value. Use letters, digits, “.”, "
                "“_”, “+” and “-”."
            )
        elif name in parameters:
            faults.append(f"Line {number}: {name} is already listed above.")
        elif len(set(values)) < len(values):
            faults.append(f"Line {number}: a value is listed twice.")
        else:
            parameters[name] = tuple(values)
    count = prod(map(len, parameters.values()))
    if count > MAX_POINTS:
        faults.append(
            f"This gives {count:,} points. A request has at most {MAX_POINTS}: list fewer values."
        )
    elif parameters and not faults and count < 2:
        faults.append("This gives one point. List several values, or leave the scan empty.")
    if faults or not parameters:
        return Scan(parameters, faults=tuple(faults))
    return Scan(parameters, _points(parameters))


def _points(parameters: Mapping[str, Sequence[str]]) -> tuple[Point, ...]:
    points = []
    for number, values in enumerate(product(*parameters.values())):
        points.append(Point(number, dict(zip(parameters, values, strict=True))))
    return tuple(points)


def scan_of(content: RequestContent) -> Scan:
    return read_scan(content.scan)


def at_point(content: RequestContent, point: Point | None) -> RequestContent:
    """Return the content for one point: its values, and its share of events and jobs."""
    if point is None:
        return content
    count = scan_of(content).count
    return replace(
        content, scan="", stages=tuple(_stage_at(stage, point, count) for stage in content.stages)
    )


def _stage_at(stage: StageContent, point: Point, count: int) -> StageContent:
    named: dict[str, Any] = {name: point.text(getattr(stage, name)) for name in TEXTS}
    arguments = {}
    for name, value in stage.arguments.items():
        arguments[name] = point.text(value) if isinstance(value, str) else value
    if isinstance(files := arguments.get("files"), int):
        arguments["files"] = files // count
    shares: dict[str, Any] = {}
    for name, total in (("events", stage.events), ("jobs", stage.jobs)):
        shares[name] = total and total // count
    return replace(stage, **named, **shares, arguments=arguments)


def texts_naming(stage: StageContent) -> dict[str, set[str]]:
    """Return the names in braces in each text of a stage, by path within the stage."""
    texts = values_of(stage, TEXTS)
    texts |= {
        f"arguments.{name}": value
        for name, value in stage.arguments.items()
        if isinstance(value, str)
    }
    return {path: set(_NAMED.findall(text)) for path, text in texts.items()}
