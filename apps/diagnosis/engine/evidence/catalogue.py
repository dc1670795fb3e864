"""The catalogue of known errors: patterns, validated on load, matched in linear time by RE2.

The shipped patterns are a CSV file.
"""

import csv
import hashlib
import io
import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from itertools import islice
from pathlib import Path
from typing import NamedTuple, TypeVar

import re2
from django.db.models import TextChoices

from apps.core.domain.expressions.problems import compile_fault, size_fault
from apps.diagnosis import wording
from apps.diagnosis.engine.base import Block, Findings, Hit, JobFacts, Pattern, Reason
from apps.diagnosis.engine.evidence.matchers import (
    Matcher,
    Re2Matcher,
    latin_options,
    matcher_of_large_logs,
)
from apps.diagnosis.engine.evidence.scan_budget import ScanBudget
from apps.diagnosis.engine.formats.chunks import Chunk, chunks, matching_lines
from apps.diagnosis.enums import Category, JobAdvice, ReasonKind, Role, Stream

log = logging.getLogger(__name__)

BUILT_IN = Path(__file__).with_name("catalogue.csv")
COLUMNS = ("id", "title", "category", "service", "regex", "advice", "role", "where", "example")
#: Maximum length of an expression, in characters.
LONGEST_REGEX = 2000
TEXT_BYTES = 1000
#: Hits of a pattern kept from the beginning of a log, and the same number from its end.
HITS_PER_END = 10
#: From this size on, a log is matched with the fastest matcher, which takes longer to compile.
LARGE_BYTES = 1024 * 1024
#: Patterns that still lack hits get a matcher of their own if this much of the log is left:
#: compiling it takes 50 ms.
REBUILD_BYTES = 8 * 1024 * 1024
#: How far back from the end of a log the last hits of common patterns are searched.
BACK_BYTES = 4 * 1024 * 1024
Choice = TypeVar("Choice", bound=TextChoices)


class KnownErrorFileError(Exception):
    """A catalogue is invalid; the message names file, line and problem."""


def compile_pattern(regex: str) -> re2._Regexp:
    """Compile a pattern for whole lines. Raises `re2.error`."""
    return re2.compile(f"(?m){regex}".encode(), latin_options())


def regex_fault(regex: str, example: str | None) -> str:
    """Return why a known error or a marker cannot use this expression, "" if it can.

    A marker has no example.
    """
    if len(regex) > LONGEST_REGEX:
        return f"is longer than {LONGEST_REGEX:,} characters"
    try:
        compiled = compile_pattern(regex)
    except re2.error as error:
        return f"does not compile in RE2: {compile_fault(error, regex)}"
    if fault := size_fault(compiled):
        return fault
    if compiled.search(b""):
        return "matches the empty line"
    if example is None or compiled.search(example.encode()):
        return ""
    return "does not match its example"


def regex_faults(expressions: Sequence[tuple[str, str | None]]) -> list[str]:
    """Return the fault of each expression, checked against its example."""
    return [regex_fault(regex, example) for regex, example in expressions]


def set_fault(regexes: Sequence[str]) -> str:
    """Return why expressions that are each valid do not compile together, "" if they do."""
    try:
        Re2Matcher(regexes)
    except re2.error as error:
        return f"{len(regexes)} patterns do not compile together: {error}"
    return ""


def first_lines(regex: str, data: bytes, count: int) -> list[tuple[int, bytes]]:
    """Return start and text of the first `count` lines that a valid expression matches."""
    return list(islice(matching_lines(compile_pattern(regex), data), count))


def _choice(choices: type[Choice], row: dict[str, str], column: str) -> Choice:
    try:
        return choices(row[column])
    except ValueError:
        raise KnownErrorFileError(
            f"unknown {column} {row[column]!r}, choose one of: {', '.join(choices)}"
        ) from None


def _pattern(row: dict[str, str]) -> Pattern:
    """Build a pattern from a row. Raises `KnownErrorFileError`."""
    for name in ("id", "title"):
        if not row[name]:
            raise KnownErrorFileError(f"{name} is missing")
    if fault := regex_fault(row["regex"], row["example"]):
        raise KnownErrorFileError(f"regex of {row['id']} {fault}")
    return Pattern(
        id=row["id"],
        title=row["title"],
        category=_choice(Category, row, "category"),
        service=row["service"],
        regex=row["regex"],
        advice=_choice(JobAdvice, row, "advice"),
        role=_choice(Role, row, "role"),
        where=row["where"],
        example=row["example"],
    )


def read_patterns(text: str, name: str) -> tuple[Pattern, ...]:
    """Parse and validate all rows of a catalogue.

    Raises `KnownErrorFileError` with `name` and the line.
    """
    rows = csv.DictReader(io.StringIO(text, newline=""))
    if tuple(rows.fieldnames or ()) != COLUMNS:
        raise KnownErrorFileError(f"{name}, line 1: columns must be {','.join(COLUMNS)}")
    patterns: dict[str, Pattern] = {}
    for row in rows:
        try:
            if None in row or None in row.values():
                raise KnownErrorFileError(f"row must have {len(COLUMNS)} columns")
            pattern = _pattern(row)
            if pattern.id in patterns:
                raise KnownErrorFileError(f"duplicate id {pattern.id}")
        except KnownErrorFileError as error:
            raise KnownErrorFileError(f"{name}, line {rows.line_num}: {error}") from None
        patterns[pattern.id] = pattern
    if not patterns:
        raise KnownErrorFileError(f"{name}: no patterns")
    return tuple(patterns.values())


class BlockHits:
    """The hits in one block."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self._hits: dict[tuple[int, int], Hit] = {}

    def add(self, place: int, index: int, hit: Hit) -> None:
        self._hits[place, index] = hit

    def in_order(self) -> tuple[Hit, ...]:
        return tuple(self._hits[key] for key in sorted(self._hits))


class _MatchedLine(NamedTuple):
    """A line of a chunk that a pattern matches; `start` is its first byte in the chunk."""

    start: int
    line: bytes
    match: re2._Match


class KnownErrorCatalogue:
    """Patterns with their matcher, compiled once: a log classifier."""

    name = "catalogue"

    def __init__(self, patterns: Sequence[Pattern], version: str, *, fast: bool = True) -> None:
        """Compile valid patterns. With `fast`, large logs use Hyperscan if it is installed.

        Raises `KnownErrorFileError` if the patterns together need too much memory.
        """
        self.patterns = tuple(patterns)
        self.version = version
        self._noise = []
        for index, pattern in enumerate(self.patterns):
            if pattern.role is Role.NOISE and not pattern.passive:
                self._noise.append(index)
        self._never_silenced = set()
        for index, pattern in enumerate(self.patterns):
            if pattern.role is Role.NOISE or pattern.passive:
                self._never_silenced.add(index)
        self._experiment_only = [
            index for index, pattern in enumerate(self.patterns) if pattern.experiment
        ]
        self._noise_set = self._matcher(self._noise)
        self._regexes = [compile_pattern(pattern.regex) for pattern in self.patterns]
        try:
            self._set = self._matcher(range(len(self.patterns)))
        except re2.error as error:
            raise KnownErrorFileError(
                f"{len(self.patterns)} patterns do not compile together: {error}"
            ) from None
        regexes = [pattern.regex for pattern in self.patterns]
        if fast:
            self._large = matcher_of_large_logs(regexes, self._set)
        else:
            self._large = self._set

    def classify(self, facts: JobFacts, block: Block) -> Findings:
        """Return the known errors in `block` in log order: of each pattern the first and last ten.

        The block is matched in chunks; single lines are examined only for patterns that match their
        chunk. Patterns that use up the time budget are not searched further; a reason reports this.
        """
        budget = ScanBudget()
        hits = BlockHits(block.stream)
        matcher: Matcher = self._set
        if len(block.data) >= LARGE_BYTES:
            matcher = self._large
        first = self._scan(facts, block, hits, matcher, budget)
        common = []
        for index, count in first.items():
            if count >= HITS_PER_END and index not in budget.skipped:
                common.append(index)
        if common and not budget.is_stopped:
            self._scan_back(facts, block, hits, None if budget.skipped else matcher, common, budget)
        if not budget.skipped and not budget.is_stopped:
            return Findings(hits=hits.in_order())

        omitted = tuple(self.patterns[index].id for index in sorted(budget.skipped))
        log.warning("known errors are too slow for a log: %s", ", ".join(omitted))
        too_slow = wording.too_slow(omitted, stopped=budget.is_stopped)
        reason = Reason(ReasonKind.CATALOGUE, too_slow)
        return Findings(hits=hits.in_order(), reasons=(reason,), omitted=omitted)

    def _scan(
        self, facts: JobFacts, block: Block, hits: BlockHits, matcher: Matcher, budget: ScanBudget
    ) -> Counter[int]:
        """Collect the first hits of each pattern and count them.

        Once most patterns have enough hits, RE2 searches the others alone, so that a log full of
        errors is read fast.
        """
        seen: Counter[int] = Counter()
        patterns: Sequence[int] = range(len(self.patterns))
        open_patterns = set(patterns).difference(
            index for index in self._experiment_only if not self._applies(index, facts)
        )

        def skip(begin: int, end: int) -> int:
            if not matcher.fast:  # replaced meanwhile by an exact matcher
                return begin
            matches = matcher.match(block.data, begin, end)
            budget.note_searched(block.data, begin, end)
            first = (first for place, first in matches.items() if place in open_patterns)
            return begin + min(first, default=end - begin + 1)

        for chunk in chunks(block, skip=skip if matcher.fast else None):
            if not open_patterns or budget.is_stopped:
                break
            for place, begin in matcher.match(chunk.text).items():
                index = patterns[place]
                if index in open_patterns:
                    seen[index] += self._collect(
                        facts, chunk, index, begin, hits, HITS_PER_END - seen[index]
                    )
                    if seen[index] >= HITS_PER_END:
                        open_patterns.discard(index)
            budget.note_searched(chunk.text, 0, len(chunk.text))
            is_slow = budget.is_slow
            if is_slow:
                open_patterns.difference_update(budget.skip_slowest(self._regexes_of(patterns)))
            has_few_left = (
                2 * len(open_patterns) < len(patterns)
                and chunk.left > REBUILD_BYTES
                and not matcher.fast
            )
            if open_patterns and (is_slow or has_few_left):
                patterns = sorted(open_patterns)
                matcher = self._matcher(patterns)
        return seen

    def _scan_back(
        self,
        facts: JobFacts,
        block: Block,
        hits: BlockHits,
        matcher: Matcher | None,
        common: Sequence[int],
        budget: ScanBudget,
    ) -> None:
        """Collect the last hits of common patterns, going back from the end within the budget.

        Without a matcher, each pattern is searched alone.
        """
        seen: Counter[int] = Counter()
        begin = max(0, len(block.data) - BACK_BYTES)
        for chunk in reversed(list(chunks(block, begin))):
            open_patterns = [index for index in common if seen[index] < HITS_PER_END]
            if not open_patterns:
                return
            if budget.is_used_up():
                budget.is_stopped = True
                return
            if matcher:
                matching = matcher.match(chunk.text)
            else:
                matching = dict.fromkeys(open_patterns, 0)
            for index in open_patterns:
                if index in matching:
                    seen[index] += self._collect(
                        facts,
                        chunk,
                        index,
                        matching[index],
                        hits,
                        HITS_PER_END - seen[index],
                        last=True,
                    )

    def _collect(
        self,
        facts: JobFacts,
        chunk: Chunk,
        index: int,
        begin: int,
        hits: BlockHits,
        room: int,
        *,
        last: bool = False,
    ) -> int:
        """Keep at most `room` hits of a pattern in a chunk; return their number.

        They are the first hits, or the last ones if `last` is set. A line counts if the pattern
        matches the line alone and no noise pattern silences it.
        """
        regex = self._regexes[index]
        never_silenced = index in self._never_silenced
        lines: list[_MatchedLine] = []
        for start, line in matching_lines(regex, chunk.text, begin):
            if not last and len(lines) == room:
                break
            if (never_silenced or not self._is_noise(line, facts)) and (
                match := regex.search(line)
            ):
                lines.append(_MatchedLine(start, line, match))
        for matched in lines[-room:]:
            offset, number = chunk.place_of(matched.start)
            hits.add(offset, index, self._hit(index, matched, offset, number, hits.stream))
        return min(len(lines), room)

    def _is_noise(self, line: bytes, facts: JobFacts) -> bool:
        return any(
            self._applies(self._noise[place], facts) for place in self._noise_set.match(line)
        )

    def _applies(self, index: int, facts: JobFacts) -> bool:
        return self.patterns[index].experiment in {"", facts.experiment}

    def _regexes_of(self, patterns: Iterable[int]) -> dict[int, str]:
        return {index: self.patterns[index].regex for index in patterns}

    def _matcher(self, patterns: Sequence[int]) -> Re2Matcher:
        return Re2Matcher([self.patterns[index].regex for index in patterns])

    def _hit(
        self,
        index: int,
        matched: _MatchedLine,
        offset: int,
        number: int | None,
        stream: Stream,
    ) -> Hit:
        start, end = matched.match.span()
        fields = {}
        for name, value in matched.match.groupdict().items():
            if value:
                fields[text_of(name)] = text_of(value)
        text = text_of(_excerpt(matched.line, start, end))
        return Hit(self.patterns[index], number, offset, text, end - start, fields, stream)


def catalogue_hits(patterns: tuple[Pattern, ...], facts: JobFacts, block: Block) -> tuple[Hit, ...]:
    """Return the hits of valid patterns in a block no larger than a page."""
    return _catalogue(patterns).classify(facts, block).hits


@lru_cache(maxsize=1)
def _catalogue(patterns: tuple[Pattern, ...]) -> KnownErrorCatalogue:
    return KnownErrorCatalogue(patterns, "", fast=False)


def _excerpt(line: bytes, start: int, end: int) -> bytes:
    """Cut a long line to the part around its match."""
    if len(line) <= TEXT_BYTES:
        return line
    left = max(0, min(start, start - (TEXT_BYTES - (end - start)) // 2))
    return line[left : left + TEXT_BYTES]


def text_of(data: bytes) -> str:
    """Decode bytes of a log for database and pages; replace invalid UTF-8 and NUL."""
    return data.decode(errors="replace").replace("\x00", "\ufffd")


def read_catalogue(path: Path) -> KnownErrorCatalogue:
    """Read a catalogue from a CSV file; its version is the first 12 digits of its SHA-256.

    Raises `KnownErrorFileError`.
    """
    try:
        content = path.read_bytes()
        patterns = read_patterns(content.decode(), path.name)
    except (OSError, UnicodeDecodeError) as error:
        raise KnownErrorFileError(f"{path}: {error}") from None
    return KnownErrorCatalogue(patterns, hashlib.sha256(content).hexdigest()[:12])


@cache
def built_in() -> KnownErrorCatalogue:
    """Return the shipped catalogue, loaded once per process."""
    return read_catalogue(BUILT_IN)
