"""Read rows of sacct, whatever free text they contain, and parse their values."""

import re
import secrets
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import cached_property

from apps.clusters.schedulers.base import SchedulerError
from apps.clusters.schedulers.commands import Commands

_SIZE = re.compile(r"(\d+(?:\.\d+)?)([KMGTP]?)[cn]?")
_DURATION = re.compile(
    r"(?:(?:(?P<days>\d+)-)?(?P<hours>\d+):)?(?P<minutes>\d+):(?P<seconds>\d+(?:\.\d+)?)"
)
# The highest possible MaxArraySize.
_MOST_TASKS = 4_000_001
_TASKS = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?")


class Sacct:
    """The accounting of one cluster, as rows of named fields."""

    def __init__(self, commands: Commands) -> None:
        self.commands = commands

    def rows(self, fields: Sequence[str], *selection: str) -> Iterator[dict[str, str]]:
        """Return the rows of a selection; fields unknown to this version of Slurm are empty.

        sacct escapes nothing, but ends each field with a delimiter of our choice. The delimiter is
        random, so that no user text can forge the end of a field or row.
        """
        available = [name for name in fields if name in self.known_fields]
        delimiter = new_delimiter()
        output = self.commands.run(
            "sacct",
            "--allusers",
            "--duplicates",
            "--noheader",
            "--parsable",
            "--noconvert",
            f"--delimiter={delimiter}",
            f"--format={','.join(available)}",
            *selection,
        )
        for values in split_rows(output, delimiter, len(available)):
            yield dict.fromkeys(fields, "") | dict(zip(available, values, strict=True))

    @cached_property
    def known_fields(self) -> frozenset[str]:
        """The names of the fields that this version of sacct can print."""
        return frozenset(self.commands.run("sacct", "--helpformat").split())


def new_delimiter() -> str:
    return f"\x1f{secrets.token_hex(16)}\x1f"


def split_rows(output: str, delimiter: str, width: int) -> Iterator[list[str]]:
    """Split sacct's output by counting fields.

    Each field ends with the delimiter, each row also with a newline. Raises `SchedulerError` if the
    output does not end with a complete row.
    """
    values = output.split(delimiter)
    if (len(values) - 1) % width or values[-1].strip("\n"):
        raise SchedulerError(f"the output breaks off: {output[-200:]!r}")
    for start in range(0, len(values) - 1, width):
        first, *others = values[start : start + width]
        yield [first.removeprefix("\n"), *others]


def read_time(text: str) -> datetime | None:
    """Parse seconds since 1970; None for `None`, `Unknown` and zero."""
    if text.isascii() and text.isdigit() and int(text):
        return datetime.fromtimestamp(int(text), UTC)
    return None


def is_duration(text: str) -> bool:
    return _DURATION.fullmatch(text) is not None


def is_size(text: str) -> bool:
    return _SIZE.fullmatch(text) is not None


def read_duration(text: str) -> float:
    """Parse `[[days-]hours:]minutes:seconds[.fraction]` as seconds; anything else is 0."""
    match = _DURATION.fullmatch(text)
    if not match:
        return 0.0
    days = float(match["days"] or 0)
    hours = float(match["hours"] or 0)
    minutes = float(match["minutes"] or 0)
    seconds = float(match["seconds"] or 0)
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def read_size(text: str) -> int | None:
    """Parse bytes, or a number with a binary unit.

    Older versions append `c` or `n` for per core or per node.
    """
    match = _SIZE.fullmatch(text)
    if not match:
        return None
    number = float(match[1])
    power = " KMGTP".index(match[2] or " ")
    return round(number * 1024.0**power)


def read_number(text: str) -> int | None:
    """Parse an integer; None for words such as `UNLIMITED` and `Partition_Limit`."""
    return int(text) if text.isascii() and text.isdigit() else None


def read_task_ids(expression: str) -> list[int]:
    """Parse the task IDs of a job array, as in `0-3,7,10-20:2%4`. Raises `ValueError`."""
    tasks: list[int] = []
    for part in expression.partition("%")[0].split(","):
        match = _TASKS.fullmatch(part)
        if not match:
            raise ValueError(f"no array expression: {expression!r}")
        first = int(match[1])
        last = int(match[2] or match[1])
        step = int(match[3] or 1)
        if last - first > _MOST_TASKS:
            raise ValueError(f"more than {_MOST_TASKS} tasks: {part!r}")
        tasks.extend(range(first, last + 1, step))
    return tasks
