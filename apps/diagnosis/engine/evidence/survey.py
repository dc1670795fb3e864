"""Find known errors before the end of a large log.

The beginning is searched at once, the rest later, within a time budget.
"""

import os
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from apps.diagnosis.engine.base import Block, Hit, JobFacts, LogClassifier
from apps.diagnosis.engine.evidence.catalogue import HITS_PER_END
from apps.diagnosis.engine.evidence.secrets import starred_text
from apps.diagnosis.engine.formats.chunks import newlines

#: The beginning of a log, which is read in the same step as its end.
HEAD_BYTES = 4 * 1024 * 1024
BLOCK_BYTES = 4 * 1024 * 1024
#: A log of 1 GB is read completely within this time.
BUDGET_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Survey:
    """Known errors before the end of a log, and how much of it was searched.

    `lines` is the number of lines in the searched part; `omitted` are the IDs of known errors that
    were too slow for it.
    """

    hits: tuple[Hit, ...] = ()
    read_bytes: int = 0
    lines: int = 0
    omitted: frozenset[str] = frozenset()

    def reaches(self, end: Block) -> bool:
        """Return whether the searched part adjoins the block at the end of the log."""
        return end.begin + self.read_bytes >= end.offset

    def numbered(self, end: Block) -> Block:
        """Return the end of the log with its line number, if all lines before it were counted."""
        if not self.reaches(end):
            return end
        return replace(end, first_line=self.lines + 1)


@dataclass(slots=True)
class _Kept:
    """The first and the last hits of one pattern."""

    first: list[Hit] = field(default_factory=list)
    last: deque[Hit] = field(default_factory=lambda: deque(maxlen=HITS_PER_END))

    def add(self, hit: Hit) -> None:
        if len(self.first) < HITS_PER_END:
            self.first.append(hit)
        else:
            self.last.append(hit)


def survey(
    descriptor: int,
    end: Block,
    facts: JobFacts,
    catalogue: LogClassifier,
    *,
    limit_bytes: int | None = None,
    budget_seconds: float = BUDGET_SECONDS,
) -> Survey:
    """Search a log from its beginning to its end block, or until a limit or the budget is reached.

    The end block was read before. The first ten and last ten hits of each pattern are kept, with
    their line numbers.
    """
    deadline = time.monotonic() + budget_seconds
    if limit_bytes is None:
        stop = end.offset
    else:
        stop = min(end.offset, end.begin + limit_bytes)
    kept: dict[str, _Kept] = {}
    omitted: set[str] = set()
    offset = end.begin
    lines = 0
    for data in _blocks(descriptor, end.begin, stop):
        block = Block(data, offset, end.file_bytes, lines + 1, end.stream, end.begin)
        findings = catalogue.classify(facts, block)
        omitted.update(findings.omitted)
        for hit in findings.hits:
            kept.setdefault(hit.pattern.id, _Kept()).add(hit)
        offset += len(data)
        lines += newlines(data)
        if time.monotonic() > deadline:
            break
    hits = []
    for pattern in kept.values():
        for hit in (*pattern.first, *pattern.last):
            hits.append(replace(hit, text=starred_text(hit.text)))
    hits.sort(key=lambda hit: hit.offset)
    return Survey(tuple(hits), offset - end.begin, lines, frozenset(omitted))


def _blocks(descriptor: int, begin: int, stop: int) -> Iterator[bytes]:
    """Yield blocks of whole lines; a line longer than a block is cut.

    Ends early if the file was truncated.
    """
    position = begin
    rest = b""
    while position < stop and (
        data := os.pread(descriptor, min(BLOCK_BYTES, stop - position), position)
    ):
        position += len(data)
        data = rest + data
        if position < stop and len(data) < 2 * BLOCK_BYTES:
            cut = data.rfind(b"\n") + 1
        else:
            cut = len(data)
        rest = data[cut:]
        if cut:
            yield data[:cut]
    if rest:
        yield rest
