"""Compare two scripts or two environments, ignoring what differs in every run.

Lines that occur once in both are anchors. Lines between two anchors are aligned one by one only if
that is cheap; otherwise they count as replaced. `patiencediff` on PyPI uses the same anchors, but
is under the GPL and does not align repeated lines between anchors. The comparison runs in a process
that is killed if it takes too long; then a plain comparison in linear time replaces it.
"""

import re
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import Literal

from apps.core.bounded_pool import POOL, BudgetExceeded

Kind = Literal["equal", "changed", "removed", "added"]
#: Time limits for a full comparison, and for marking words that differ; later lines are marked as a
#: whole.
SECONDS = 1.0
WORDS_SECONDS = 0.3
#: Maximum number of line pairs compared between two anchors, and of words compared in a line.
MOST_PAIRS = 2_000_000
MOST_WORDS = 300
#: A shorter job ID could be any number.
SHORTEST_ID = 3

_RULES = [
    (
        re.compile(
            r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", re.IGNORECASE
        ),
        "<uuid>",
    ),
    (
        re.compile(
            r"\b20\d\d-\d\d-\d\d([T_ ]\d\d[:h]?\d\d([:m]?\d\d(\.\d+)?s?)?(Z|[+-]\d\d:?\d\d)?)?"
        ),
        "<date>",
    ),
    (re.compile(r"(?<!\d)20\d\d[01]\d[0-3]\d([T_-]?[0-2]\d[0-5]\d([0-5]\d)?)?(?!\d)"), "<date>"),
    (re.compile(r"\b[0-2]?\d:[0-5]\d:[0-5]\d(\.\d+)?\b"), "<time>"),
    (re.compile(r"(?<![\w/])/(var/)?tmp/[^\s;:'\"<>|&()]+"), "<temporary>"),
    # The fingerprint of a secret shows whether two secrets are equal, so it is kept.
    (
        re.compile(
            r"(?<!<masked:)\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{8,}\b", re.IGNORECASE
        ),
        "<hex>",
    ),
]
_WORD_OR_BLANKS = re.compile(r"\w+|\s+|.")

#: Variables that differ in every run and carry no information.
_NOISE = re.compile(
    r"_|SHLVL|PWD|OLDPWD|TMPDIR|HOSTNAME|LS_COLORS|DISPLAY|WINDOW(ID|PATH)?|KRB5CCNAME"
    r"|INVOCATION_ID|JOURNAL_STREAM"
    r"|SSH_\w+|XDG_\w+|DBUS_\w+|GPG_\w+|PBS_JOBID|PBS_JOBCOOKIE|PBS_NODEFILE|_CONDOR_\w+|SLURMD_\w+"
    r"|SLURM_(JOB_?ID|ARRAY_(JOB|TASK)_ID|JOB_(START|END)_TIME|(JOB_)?NODELIST|NODEID|LOCALID"
    r"|PROCID|GTIDS|TASK_PID"
    r"|STEP_?\w*|SRUN_\w+|LAUNCH_\w+|TOPOLOGY_\w+|(CPU|MEM)_BIND\w*|PRIO_PROCESS"
    r"|SUBMIT_(HOST|DIR)|WORKING_CLUSTER)"
)


@dataclass(frozen=True, slots=True)
class ComparedJob:
    """One job of a comparison; None stands for damaged or hidden content."""

    job_id: str
    lines: Sequence[str] | None
    variables: Mapping[str, str] | None


@dataclass(frozen=True, slots=True)
class TextPiece:
    """A part of a line; `changed` if it differs from the other line."""

    text: str
    changed: bool = False


@dataclass(frozen=True, slots=True)
class DiffRow:
    """Two lines side by side, by number; one is missing if a line was removed or added."""

    kind: Kind
    left: int | None
    right: int | None
    left_pieces: tuple[TextPiece, ...] = ()
    right_pieces: tuple[TextPiece, ...] = ()

    @property
    def left_text(self) -> str:
        return "".join(piece.text for piece in self.left_pieces)

    @property
    def right_text(self) -> str:
        return "".join(piece.text for piece in self.right_pieces)


@dataclass(frozen=True, slots=True)
class VariableChange:
    """One variable of two environments; `kind` is as in `DiffRow`."""

    name: str
    kind: Kind
    left: str
    right: str


@dataclass(frozen=True, slots=True)
class JobComparison:
    """Rows of the scripts, variables that differ, and those that differ in every run (`noise`).

    `plain` if the full comparison took too long: then nothing is normalised, no words are marked,
    and alignment is coarse.
    """

    rows: list[DiffRow] | None
    changes: list[VariableChange] | None
    noise: list[VariableChange]
    equal_variables: int
    plain: bool


def compare(left: ComparedJob, right: ComparedJob, *, exact: bool) -> JobComparison:
    """Compare two jobs; unless `exact`, differences that occur in every run are ignored."""
    try:
        return POOL.call(compare_fully, left, right, exact, seconds=SECONDS)
    except BudgetExceeded:
        return _compare(left, right, exact=exact, plain=True)


def compare_fully(left: ComparedJob, right: ComparedJob, exact: bool) -> JobComparison:
    """Compare two jobs in a time that depends on their texts."""
    return _compare(left, right, exact=exact, plain=False)


def _compare(left: ComparedJob, right: ComparedJob, *, exact: bool, plain: bool) -> JobComparison:
    rows = None
    if left.lines is not None and right.lines is not None:
        left_keys = _line_keys(left, verbatim=exact or plain)
        right_keys = _line_keys(right, verbatim=exact or plain)
        rows = compare_lines(left.lines, right.lines, left_keys, right_keys, plain=plain)

    if left.variables is None or right.variables is None:
        return JobComparison(rows, None, [], 0, plain)
    changes = compare_variables(left.variables, right.variables)
    differing = [change for change in changes if change.kind != "equal"]
    noise = []
    shown = []
    for change in differing:
        if not exact and _is_noise(change, left.job_id, right.job_id, plain=plain):
            noise.append(change)
        else:
            shown.append(change)
    return JobComparison(rows, shown, noise, len(changes) - len(differing), plain)


def _line_keys(side: ComparedJob, *, verbatim: bool) -> Sequence[str]:
    """Return the keys by which the lines of a script are compared; the lines if `verbatim`."""
    lines = side.lines or ()
    if verbatim:
        return lines
    return [normalise(line, job_id=side.job_id) for line in lines]


def _is_noise(change: VariableChange, left_id: str, right_id: str, *, plain: bool) -> bool:
    if _NOISE.fullmatch(change.name):
        return True
    if plain or change.kind != "changed":
        return False
    return normalise(change.left, job_id=left_id) == normalise(change.right, job_id=right_id)


def normalise(text: str, *, job_id: str = "") -> str:
    """Replace dates, times, temporary paths, long hexadecimal numbers and the job's ID."""
    text = text.rstrip()
    for pattern, instead in _RULES:
        text = pattern.sub(instead, text)
    if len(job_id) >= SHORTEST_ID:
        text = re.sub(rf"(?<![\w]){re.escape(job_id)}(?![\w])", "<job>", text)
    return text


def compare_lines(
    left: Sequence[str],
    right: Sequence[str],
    left_keys: Sequence[str],
    right_keys: Sequence[str],
    *,
    plain: bool = False,
) -> list[DiffRow]:
    """Align two scripts by the keys of their lines: equal keys mean equal lines."""
    rows: list[DiffRow] = []
    end = time.monotonic() + (0 if plain else WORDS_SECONDS)
    for block in _blocks(left_keys, right_keys, plain=plain):
        left_indices = range(block.left_start, block.left_end)
        right_indices = range(block.right_start, block.right_end)
        for i, j in zip_longest(left_indices, right_indices):
            if i is None:
                rows.append(DiffRow("added", None, j + 1, (), _whole_line(right[j])))
            elif j is None:
                rows.append(DiffRow("removed", i + 1, None, _whole_line(left[i]), ()))
            elif left_keys[i] == right_keys[j]:
                rows.append(
                    DiffRow("equal", i + 1, j + 1, (TextPiece(left[i]),), (TextPiece(right[j]),))
                )
            elif time.monotonic() > end:
                pieces = _whole_line(left[i]), _whole_line(right[j])
                rows.append(DiffRow("changed", i + 1, j + 1, *pieces))
            else:
                rows.append(DiffRow("changed", i + 1, j + 1, *_pieces(left[i], right[j])))
    return rows


def _whole_line(text: str) -> tuple[TextPiece]:
    return (TextPiece(text, changed=True),)


def _pieces(left: str, right: str) -> tuple[tuple[TextPiece, ...], tuple[TextPiece, ...]]:
    """Mark the words that differ between two lines."""
    left_words = _WORD_OR_BLANKS.findall(left)
    right_words = _WORD_OR_BLANKS.findall(right)
    whole_lines = _whole_line(left), _whole_line(right)
    if max(len(left_words), len(right_words)) > MOST_WORDS:
        return whole_lines

    matcher = SequenceMatcher(None, left_words, right_words, autojunk=False)
    if matcher.ratio() < 0.3:
        return whole_lines

    left_pieces = []
    right_pieces = []
    for kind, left_start, left_end, right_start, right_end in matcher.get_opcodes():
        changed = kind != "equal"
        if left_start < left_end:
            left_pieces.append(TextPiece("".join(left_words[left_start:left_end]), changed=changed))
        if right_start < right_end:
            right_pieces.append(
                TextPiece("".join(right_words[right_start:right_end]), changed=changed)
            )
    return tuple(left_pieces), tuple(right_pieces)


@dataclass(frozen=True, slots=True)
class _Block:
    """Lines [start, end) of the left text beside lines of the right text, by index."""

    left_start: int
    left_end: int
    right_start: int
    right_end: int


def _blocks(left: Sequence[str], right: Sequence[str], *, plain: bool) -> Iterator[_Block]:
    """Yield blocks of lines, in order, that together cover both texts."""
    start = _common_lines(left, right)
    end = _common_lines(left[start:][::-1], right[start:][::-1])
    left_end = len(left) - end
    right_end = len(right) - end
    if start:
        yield _Block(0, start, 0, start)
    left_start = start
    right_start = start
    for left_anchor, right_anchor in _anchors(left, right, start, end):
        between = _Block(left_start, left_anchor, right_start, right_anchor)
        yield from _align(left, right, between, plain=plain)
        yield _Block(left_anchor, left_anchor + 1, right_anchor, right_anchor + 1)
        left_start = left_anchor + 1
        right_start = right_anchor + 1
    last = _Block(left_start, left_end, right_start, right_end)
    yield from _align(left, right, last, plain=plain)
    if end:
        yield _Block(left_end, len(left), right_end, len(right))


def _common_lines(left: Sequence[str], right: Sequence[str]) -> int:
    """Return how many lines at the beginning are the same."""
    common = 0
    for left_line, right_line in zip(left, right, strict=False):
        if left_line != right_line:
            break
        common += 1
    return common


def _anchors(
    left: Sequence[str], right: Sequence[str], start: int, end: int
) -> list[tuple[int, int]]:
    """Return the positions of lines that occur once in each text, in an order common to both.

    The first `start` and the last `end` lines of both are left out.
    """
    left_middle = left[start : len(left) - end]
    right_middle = right[start : len(right) - end]
    left_counts = Counter(left_middle)
    right_counts = Counter(right_middle)
    places = {}
    for index, key in enumerate(right_middle, start):
        if left_counts[key] == right_counts[key] == 1:
            places[key] = index
    pairs = []
    for index, key in enumerate(left_middle, start):
        if key in places:
            pairs.append((index, places[key]))
    return _longest_increasing(pairs)


def _longest_increasing(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the most pairs whose second numbers increase; the first ones do already.

    This is patience sorting: `ends` has the smallest end of a chain of each length, `last` the
    index of its last pair, and `before` the previous pair of each pair in its chain.
    """
    ends: list[int] = []
    last: list[int] = []
    before: list[int] = []
    for index, (_, place) in enumerate(pairs):
        slot = bisect_left(ends, place)
        before.append(last[slot - 1] if slot else -1)
        if slot == len(ends):
            ends.append(place)
            last.append(index)
        else:
            ends[slot] = place
            last[slot] = index
    chain: list[tuple[int, int]] = []
    index = last[-1] if last else -1
    while index >= 0:
        chain.append(pairs[index])
        index = before[index]
    return chain[::-1]


def _align(
    left: Sequence[str], right: Sequence[str], block: _Block, *, plain: bool
) -> Iterator[_Block]:
    """Divide a block between two anchors into smaller ones, unless that takes too long."""
    left_lines = left[block.left_start : block.left_end]
    right_lines = right[block.right_start : block.right_end]
    if not left_lines and not right_lines:
        return
    if plain:
        yield block
        return
    counts = Counter(right_lines)
    pairs = sum(counts[key] for key in left_lines)
    # For each block that it finds, `SequenceMatcher` may examine all pairs again.
    if pairs == 0 or pairs * min(len(left_lines), len(right_lines)) > MOST_PAIRS:
        yield block
        return
    matcher = SequenceMatcher(None, left_lines, right_lines, autojunk=False)
    for _, left_from, left_to, right_from, right_to in matcher.get_opcodes():
        yield _Block(
            block.left_start + left_from,
            block.left_start + left_to,
            block.right_start + right_from,
            block.right_start + right_to,
        )


def compare_variables(left: Mapping[str, str], right: Mapping[str, str]) -> list[VariableChange]:
    changes = []
    for name in sorted(left.keys() | right.keys()):
        kind: Kind = "changed"
        if name not in right:
            kind = "removed"
        elif name not in left:
            kind = "added"
        elif left[name] == right[name]:
            kind = "equal"
        changes.append(VariableChange(name, kind, left.get(name, ""), right.get(name, "")))
    return changes
