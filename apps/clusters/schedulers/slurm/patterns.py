"""Slurm's file name patterns, `%j` and its like, as slurmstepd fills them in for a batch script."""

import re

from apps.clusters.schedulers.base import JobRecord

DEFAULT_OUTPUT = "slurm-%j.out"
DEFAULT_ARRAY_OUTPUT = "slurm-%A_%a.out"

_PATTERN = re.compile(r"%(?:(%)|(\d*)([A-Za-z]))")
_NO_TASK = 4294967294  # what Slurm prints for %a of a job that is no array
_MOST_DIGITS = 10


def fill_in(pattern: str, record: JobRecord) -> str:
    """Return the path that `pattern` means for a job. A backslash anywhere makes the pattern a plain name."""
    if "\\" in pattern:
        return re.sub(r"\\(.)", r"\1", pattern)
    values = _values(record)

    def replacement(match: re.Match[str]) -> str:
        percent, width, letter = match.groups()
        if percent:
            return "%"
        value = values.get(letter)
        if isinstance(value, int):
            return str(value).zfill(min(int(width or 0), _MOST_DIGITS))
        return value if value is not None else match[0]

    return _PATTERN.sub(replacement, pattern)


def default_output(record: JobRecord) -> str:
    """Return where a job writes that names no output."""
    return DEFAULT_ARRAY_OUTPUT if _task_id(record) is not None else DEFAULT_OUTPUT


def _values(record: JobRecord) -> dict[str, int | str]:
    task = _task_id(record)
    return {
        "A": int(record.spool_id) if task is not None else record.raw_id,
        "a": _NO_TASK if task is None else task,
        "b": (_NO_TASK if task is None else task) % 10,
        "J": record.raw_id,
        "j": record.raw_id,
        "N": _first_host(record.host),
        "n": 0,
        "s": "batch",
        "t": 0,
        "u": record.user,
        "x": record.name,
    }


def _task_id(record: JobRecord) -> int | None:
    _, _, task = record.job_id.partition("_")
    return int(task) if task.isascii() and task.isdigit() else None


def _first_host(expression: str) -> str:
    """Return the short name of the first host in a list such as `wn[03-07,12],gpu1`."""
    match = re.match(r"([^,\[.]*)(?:\[(\w+))?", expression)
    return match[1] + (match[2] or "") if match else ""
