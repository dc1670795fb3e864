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
class Piece:
    """A part of a line; `changed` if it differs from the other line."""

    text: str
    changed: bool = False


@dataclass(frozen=True, slots=True)
class DiffRow:
    """Two lines side by side, by number; one is missing if a line was removed or added."""

    kind: Kind
    left: int | None
    right: int | None
    left_pieces: tuple[Piece, ...] = ()
    right_pieces: tuple[Piece, ...] = ()

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
    return [normalised(line, job_id=side.job_id) for line in lines]


def _is_noise(change: VariableChange, left_id: str, right_id: str, *, plain: bool) -> bool:
    if _NOISE.fullmatch(change.name):
        return True
    if plain or change.kind != "changed":
        return False
    return normalised(change.left, job_id=left_id) == normalised(change.right, job_id=right_id)


def normalised(text: str, *, job_id: str = "") -> str:
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
    for _, a0, a1, b0, b1 in _blocks(left_keys, right_keys, plain=plain):
        for a, b in zip_longest(range(a0, a1), range(b0, b1)):
            if a is None:
                rows.append(DiffRow("added", None, b + 1, (), (Piece(right[b], changed=True),)))
            elif b is None:
                rows.append(DiffRow("removed", a + 1, None, (Piece(left[a], changed=True),), ()))
            elif left_keys[a] == right_keys[b]:
                rows.append(DiffRow("equal", a + 1, b + 1, (Piece(left[a]),), (Piece(right[b]),)))
            elif time.monotonic() > end:
                pieces = (Piece(left[a], changed=True),), (Piece(right[b], changed=True),)
                rows.append(DiffRow("changed", a + 1, b + 1, *pieces))
            else:
                rows.append(DiffRow("changed", a + 1, b + 1, *_pieces(left[a], right[b])))
    return rows


def _pieces(left: str, right: str) -> tuple[tuple[Piece, ...], tuple[Piece, ...]]:
    """Mark the words that differ between two lines."""
    left_words = _WORD_OR_BLANKS.findall(left)
    right_words = _WORD_OR_BLANKS.findall(right)
    whole_lines = (Piece(left, changed=True),), (Piece(right, changed=True),)
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
            left_pieces.append(Piece("".join(left_words[left_start:left_end]), changed=changed))
        if right_start < right_end:
            right_pieces.append(Piece("".join(right_words[right_start:right_end]), changed=changed))
    return tuple(left_pieces), tuple(right_pieces)


Block = tuple[str, int, int, int, int]


def _blocks(a: Sequence[str], b: Sequence[str], *, plain: bool) -> Iterator[Block]:
    """Yield equal and other blocks, in order, that together cover both texts."""
    start = _common(a, b)
    end = _common(a[start:][::-1], b[start:][::-1])
    if start:
        yield "equal", 0, start, 0, start
    a0 = start
    b0 = start
    for a1, b1 in [*_anchors(a, b, start, end), (len(a) - end, len(b) - end)]:
        yield from _between(a, b, a0, a1, b0, b1, plain=plain)
        if a1 < len(a) - end:
            yield "equal", a1, a1 + 1, b1, b1 + 1
        a0 = a1 + 1
        b0 = b1 + 1
    if end:
        yield "equal", len(a) - end, len(a), len(b) - end, len(b)


def _common(a: Sequence[str], b: Sequence[str]) -> int:
    """Return how many lines at the beginning are the same."""
    return next(
        (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
    )


def _anchors(a: Sequence[str], b: Sequence[str], start: int, end: int) -> list[tuple[int, int]]:
    """Return the positions of lines that occur once in each text, in an order common to both."""
    inner_a = a[start : len(a) - end]
    inner_b = b[start : len(b) - end]
    once = Counter(inner_a), Counter(inner_b)
    places = {}
    for index, key in enumerate(inner_b, start):
        if once[0][key] == once[1][key] == 1:
            places[key] = index
    pairs = []
    for index, key in enumerate(inner_a, start):
        if key in places:
            pairs.append((index, places[key]))
    return _longest_increasing(pairs)


def _longest_increasing(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
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


def _between(
    a: Sequence[str], b: Sequence[str], a0: int, a1: int, b0: int, b1: int, *, plain: bool
) -> Iterator[Block]:
    if a0 == a1 and b0 == b1:
        return
    if plain:
        yield "replace", a0, a1, b0, b1
        return
    counts = Counter(b[b0:b1])
    pairs = sum(counts[key] for key in a[a0:a1])
    # For each block that it finds, `SequenceMatcher` may examine all pairs again.
    if pairs == 0 or pairs * min(a1 - a0, b1 - b0) > MOST_PAIRS:
        yield "replace", a0, a1, b0, b1
        return
    for kind, i0, i1, j0, j1 in SequenceMatcher(
        None, a[a0:a1], b[b0:b1], autojunk=False
    ).get_opcodes():
        yield kind, a0 + i0, a0 + i1, b0 + j0, b0 + j1


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
