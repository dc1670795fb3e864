"""The catalogue of known errors: patterns, validated on load, matched in linear time by RE2. Shipped ones are a CSV."""

import csv
import hashlib
import io
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TypeVar

import re2
from django.db.models import TextChoices

from apps.diagnosis.engine.base import Block, Findings, Hit, JobFacts, Pattern
from apps.diagnosis.engine.chunks import Chunk, chunks, matching_lines
from apps.diagnosis.enums import Advice, Category, Role, Stream

BUILT_IN = Path(__file__).with_name("catalogue.csv")
COLUMNS = ("id", "title", "category", "service", "regex", "advice", "role", "where", "example")
_NOT_LINEAR = re.compile(r"\(\?(?:=|!|<=|<!|P=)|\\[1-9]")
TEXT_BYTES = 1000
#: So many hits of a pattern are kept from the beginning of a log, and as many from its end.
HITS_PER_END = 10
#: So many lines are remembered with the patterns that match them.
REMEMBERED_LINES = 4096
#: Patterns that lack hits are searched alone if so much of the log is left: compiling them takes 50 ms.
REBUILD_BYTES = 8 * 1024 * 1024
#: The last hits of common patterns are looked for so far back.
BACK_BYTES = 4 * 1024 * 1024
#: What RE2 may keep of the states it has seen, of one pattern and of all together: a hostile log makes new ones all the
#: time. Beyond it RE2 begins anew, and goes on.
PATTERN_MEMORY_BYTES = 8 * 1024 * 1024
SET_MEMORY_BYTES = 24 * 1024 * 1024
Choice = TypeVar("Choice", bound=TextChoices)


class CatalogueError(Exception):
    """A catalogue is invalid; the message names file, line and problem."""


def latin_options(memory_bytes: int = PATTERN_MEMORY_BYTES) -> re2.Options:
    """Latin-1 makes every byte a character: any log matches, and spans are byte offsets."""
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.max_mem = memory_bytes
    options.log_errors = False
    return options


def compile_pattern(regex: str) -> re2._Regexp:
    """Compile a pattern for whole lines. Raises `re2.error`."""
    return re2.compile(f"(?m){regex}".encode(), latin_options())


def regex_fault(regex: str, example: str) -> str:
    """Return why a known error cannot have this expression: not linear, or its example is missed; else ""."""
    try:
        compiled = compile_pattern(regex)
    except re2.error as error:
        why = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else str(error)
        hint = " (RE2 has no lookaround and no back-references)" if _NOT_LINEAR.search(regex) else ""
        return f"does not compile in RE2: {why}{hint}"
    if compiled.search(b""):
        return "matches the empty line"
    return "" if compiled.search(example.encode()) else "does not match its example"


def _choice(choices: type[Choice], row: dict[str, str], column: str) -> Choice:
    try:
        return choices(row[column])
    except ValueError:
        raise CatalogueError(f"unknown {column} {row[column]!r}, choose one of: {', '.join(choices)}") from None


def _pattern(row: dict[str, str]) -> Pattern:
    """Build a pattern from a row. Raises `CatalogueError`."""
    for name in ("id", "title"):
        if not row[name]:
            raise CatalogueError(f"{name} is missing")
    if fault := regex_fault(row["regex"], row["example"]):
        raise CatalogueError(f"regex of {row['id']} {fault}")
    return Pattern(
        id=row["id"],
        title=row["title"],
        category=_choice(Category, row, "category"),
        service=row["service"],
        regex=row["regex"],
        advice=_choice(Advice, row, "advice"),
        role=_choice(Role, row, "role"),
        where=row["where"],
        example=row["example"],
    )


def read_patterns(text: str, name: str) -> tuple[Pattern, ...]:
    """Parse and validate all rows of a catalogue. Raises `CatalogueError` with `name` and the line."""
    rows = csv.DictReader(io.StringIO(text, newline=""))
    if tuple(rows.fieldnames or ()) != COLUMNS:
        raise CatalogueError(f"{name}, line 1: columns must be {','.join(COLUMNS)}")
    patterns: dict[str, Pattern] = {}
    for row in rows:
        try:
            if None in row or None in row.values():
                raise CatalogueError(f"row must have {len(COLUMNS)} columns")
            pattern = _pattern(row)
            if pattern.id in patterns:
                raise CatalogueError(f"duplicate id {pattern.id}")
        except CatalogueError as error:
            raise CatalogueError(f"{name}, line {rows.line_num}: {error}") from None
        patterns[pattern.id] = pattern
    if not patterns:
        raise CatalogueError(f"{name}: no patterns")
    return tuple(patterns.values())


class Found:
    """The hits of one block, and which patterns match the lines looked at."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self._hits: dict[tuple[int, int], Hit] = {}
        self._matching: dict[bytes, frozenset[int]] = {}

    def matching(self, line: bytes, match: Callable[[bytes], frozenset[int]]) -> frozenset[int]:
        """Return the patterns that match a line. Equal lines, which errors often are, are asked for once."""
        known = self._matching.get(line)
        if known is None:
            known = match(line)
            if len(line) <= TEXT_BYTES:
                if len(self._matching) >= REMEMBERED_LINES:
                    self._matching.clear()
                self._matching[line] = known
        return known

    def add(self, place: int, index: int, hit: Hit) -> None:
        self._hits[place, index] = hit

    def in_order(self) -> tuple[Hit, ...]:
        return tuple(self._hits[key] for key in sorted(self._hits))


class Catalogue:
    """Patterns with their matcher, compiled once: a log classifier."""

    name = "catalogue"

    def __init__(self, patterns: Sequence[Pattern], version: str) -> None:
        """Compile valid patterns. Raises `CatalogueError` if they need too much memory together."""
        self.patterns, self.version = tuple(patterns), version
        self._noise = frozenset(
            index for index, pattern in enumerate(self.patterns) if pattern.role is Role.NOISE and not pattern.passive
        )
        self._quiet = self._noise.union(index for index, pattern in enumerate(self.patterns) if pattern.passive)
        self._regexes = [compile_pattern(pattern.regex) for pattern in self.patterns]
        try:
            self._set = self._matcher(range(len(self.patterns)))
        except re2.error as error:
            raise CatalogueError(f"{len(self.patterns)} patterns do not compile together: {error}") from None

    def classify(self, facts: JobFacts, block: Block) -> Findings:
        """Return the known errors in `block`, in log order: of each pattern the first ten and the last ten.

        Only lines in which a pattern of their chunk matches are looked at one by one: a log may be all short lines.
        """
        found = Found(block.stream)
        first = self._scan(facts, chunks(block), found, self._set, range(len(self.patterns)))
        common = [index for index, count in first.items() if count >= HITS_PER_END]
        if common:
            self._scan_back(facts, block, found, common)
        return Findings(hits=found.in_order())

    def _scan(
        self, facts: JobFacts, parts: Iterator[Chunk], found: Found, matcher: re2.Set, patterns: Sequence[int]
    ) -> Counter[int]:
        """Collect the first hits of each pattern and count them.

        Once most patterns have theirs, the others are searched alone: a log of nothing but errors is read fast.
        """
        seen: Counter[int] = Counter()
        wanted = set(patterns)
        searched = len(wanted)
        for chunk in parts:
            if not wanted:
                break
            for place in matcher.Match(chunk.text) or ():
                index = patterns[place]
                if index in wanted:
                    seen[index] += self._collect(facts, chunk, index, found, HITS_PER_END - seen[index])
                    if seen[index] >= HITS_PER_END:
                        wanted.discard(index)
            if 2 * len(wanted) < searched and chunk.left > REBUILD_BYTES and wanted:
                patterns = sorted(wanted)
                matcher, searched = self._matcher(patterns), len(patterns)
        return seen

    def _scan_back(self, facts: JobFacts, block: Block, found: Found, common: Sequence[int]) -> None:
        """Collect the last hits of common patterns from the end, as far back as the budget reaches."""
        seen: Counter[int] = Counter()
        begin = max(0, len(block.data) - BACK_BYTES)
        for chunk in reversed(list(chunks(block, begin))):
            wanted = [index for index in common if seen[index] < HITS_PER_END]
            if not wanted:
                return
            matching = set(self._set.Match(chunk.text) or ())
            for index in wanted:
                if index in matching:
                    seen[index] += self._collect(facts, chunk, index, found, HITS_PER_END - seen[index], last=True)

    def _collect(
        self, facts: JobFacts, chunk: Chunk, index: int, found: Found, room: int, *, last: bool = False
    ) -> int:
        """Keep at most `room` hits of a pattern in a chunk, the first or the last ones; return how many."""
        lines: list[tuple[int, bytes]] = []
        match = partial(self._matching, facts.experiment)
        for start, line in matching_lines(self._regexes[index], chunk.text):
            if not last and len(lines) == room:
                break
            if index in found.matching(line, match):
                lines.append((start, line))
        for start, line in lines[-room:]:
            place, number = chunk.place_of(start)
            found.add(place, index, self._hit(index, line, place, number, found.stream))
        return min(len(lines), room)

    def _matcher(self, patterns: Sequence[int]) -> re2.Set:
        matcher = re2.Set.SearchSet(latin_options(SET_MEMORY_BYTES))
        for index in patterns:
            matcher.Add(f"(?m){self.patterns[index].regex}")
        matcher.Compile()
        return matcher

    def _matching(self, experiment: str, line: bytes) -> frozenset[int]:
        """Return the patterns that match a line; of a line with noise the noise and the passive ones."""
        found = (
            [index for index in self._set.Match(line) or () if self.patterns[index].experiment in {"", experiment}]
            if line
            else []
        )
        return frozenset(found) if self._noise.isdisjoint(found) else self._quiet.intersection(found)

    def _hit(self, index: int, line: bytes, offset: int, number: int | None, stream: Stream) -> Hit:
        match = self._regexes[index].search(line)
        start, end = match.span()
        fields = {text_of(name): text_of(value) for name, value in match.groupdict().items() if value}
        text = text_of(_excerpt(line, start, end))
        return Hit(self.patterns[index], number, offset, text, end - start, fields, stream)


def _excerpt(line: bytes, start: int, end: int) -> bytes:
    """Cut a long line to the text around its match."""
    if len(line) <= TEXT_BYTES:
        return line
    left = max(0, min(start, start - (TEXT_BYTES - (end - start)) // 2))
    return line[left : left + TEXT_BYTES]


def text_of(data: bytes) -> str:
    """Decode bytes of a log as text for database and pages: invalid UTF-8 and NUL are replaced."""
    return data.decode(errors="replace").replace("\x00", "\ufffd")


def read_catalogue(path: Path) -> Catalogue:
    """Read a catalogue from a CSV file; its version is the beginning of its SHA-256. Raises `CatalogueError`."""
    try:
        content = path.read_bytes()
        patterns = read_patterns(content.decode(), path.name)
    except (OSError, UnicodeDecodeError) as error:
        raise CatalogueError(f"{path}: {error}") from None
    return Catalogue(patterns, hashlib.sha256(content).hexdigest()[:12])


@cache
def built_in() -> Catalogue:
    """Return the shipped catalogue, loaded once per process."""
    return read_catalogue(BUILT_IN)
