"""The values that sacct prints, read: times, durations, sizes, exit codes, array expressions."""

import re
from datetime import UTC, datetime

_SIZE = re.compile(r"(\d+(?:\.\d+)?)([KMGTP]?)[cn]?")
_DURATION = re.compile(r"(?:(?:(?P<days>\d+)-)?(?P<hours>\d+):)?(?P<minutes>\d+):(?P<seconds>\d+(?:\.\d+)?)")
_TASKS = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?")


def read_time(text: str) -> datetime | None:
    """Read seconds since 1970; `None`, `Unknown` and zero are no time."""
    return datetime.fromtimestamp(int(text), UTC) if text.isascii() and text.isdigit() and int(text) else None


def read_duration(text: str) -> float:
    """Read `[[days-]hours:]minutes:seconds[.fraction]` as seconds; anything else is 0."""
    match = _DURATION.fullmatch(text)
    if not match:
        return 0.0
    days, hours, minutes, seconds = (float(match[name] or 0) for name in ("days", "hours", "minutes", "seconds"))
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def read_size(text: str) -> int | None:
    """Read bytes, or a number with a binary unit; older versions add `c` or `n` for per core or per node."""
    match = _SIZE.fullmatch(text)
    return round(float(match[1]) * 1024 ** " KMGTP".index(match[2] or " ")) if match else None


def read_number(text: str) -> int | None:
    """Read a whole number; words such as `UNLIMITED` and `Partition_Limit` are none."""
    return int(text) if text.isascii() and text.isdigit() else None


def read_exit_code(text: str) -> tuple[int, int]:
    """Read `code:signal`. Raises `ValueError`."""
    code, _, signal = text.partition(":")
    return int(code), int(signal or 0)


def read_task_ids(expression: str) -> list[int]:
    """Read the tasks of a job array, as in `0-3,7,10-20:2%4`. Raises `ValueError`."""
    tasks: list[int] = []
    for part in expression.partition("%")[0].split(","):
        match = _TASKS.fullmatch(part)
        if not match:
            raise ValueError(f"no array expression: {expression!r}")
        first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        tasks.extend(range(first, last + 1, step))
    return tasks
