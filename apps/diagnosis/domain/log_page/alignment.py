"""Align the lines of two logs after masking the parts that differ in every run.

This runs in a separate process, which is killed if it takes too long: the module needs no settings.
"""

import re
from collections.abc import Sequence

from apps.archive.domain.comparison import DiffRow, compare_lines, normalise

#: Numbers differ from run to run, except exit codes, signals and status codes, which distinguish a
#: failure from a success.
_NUMBERS = re.compile(
    r"(?<![\d.])(?<!code )(?<!code=)(?<!signal )(?<!status )(?<!status=)(?<!HTTP )(?<!error: "
    r")(?<!errno=)"
    r"(?:\d[\d.,:]*|\.\d+)(?:[eE][+-]?\d+|(?:st|nd|rd|th)\b)?"
)
_SIGNS = re.compile(r"(?<![\w>])[-+](?=<n>)")
_SPACES = re.compile(r"[ \t]+")
_PATHS = re.compile(r"(?:[a-z]{2,8}:/)?(?:/[\w.+=@%~:-]{1,255}){2,}/?")
_FILES = re.compile(
    r"\b[\w-]{1,200}\.(?:root|raw|dat|hdf5|h5|fits|json|txt|log|gz)\b(?:\.\w{1,8})?"
)
#: A test or a debug re-run names its stage and datasets so; it is the same stage.
_PURPOSES = re.compile(r"(?<=\w)\.(?:test|debug)\b")
LINE_CHARACTERS = 1000


def mask_line(line: str, job_id: str) -> str:
    """Return a line without times, IDs, paths, file names, numbers, ordinals and column widths.

    It does not tell whether the job is a test or a debug re-run either.
    """
    text = _PURPOSES.sub("", normalise(line[:LINE_CHARACTERS], job_id=job_id))
    text = _NUMBERS.sub("<n>", _FILES.sub("<file>", _PATHS.sub("<path>", text)))
    return _SPACES.sub(" ", _SIGNS.sub("", text)).strip()


def align(
    left: Sequence[str], right: Sequence[str], left_id: str, right_id: str
) -> tuple[list[DiffRow], list[bool]]:
    """Return the rows of two logs, and for each whether the other log lacks its line."""
    keys = (
        [mask_line(line, left_id) for line in left],
        [mask_line(line, right_id) for line in right],
    )
    rows = compare_lines(left, right, *keys)
    known = set(keys[0]), set(keys[1])
    return rows, [_is_new(row, keys, known) for row in rows]


def _is_new(
    row: DiffRow, keys: tuple[list[str], list[str]], known: tuple[set[str], set[str]]
) -> bool:
    if row.kind == "equal":
        return False
    only_left = row.left is not None and keys[0][row.left - 1] not in known[1]
    only_right = row.right is not None and keys[1][row.right - 1] not in known[0]
    return only_left or only_right
