"""The catalogue of known errors: patterns, validated on load, matched in linear time by RE2. Shipped ones are a CSV."""

import csv
import hashlib
import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TypeVar

import re2
from django.db.models import TextChoices

from apps.diagnosis.engine.base import Block, Findings, Hit, JobFacts, Pattern
from apps.diagnosis.engine.plain_lines import clean
from apps.diagnosis.enums import Advice, Category, Role, Stream

BUILT_IN = Path(__file__).with_name("catalogue.csv")
COLUMNS = ("id", "title", "category", "service", "regex", "advice", "role", "where", "example")
CHUNK_BYTES = 64 * 1024
_NEWLINE = re.compile(rb"\n")
_NOT_LINEAR = re.compile(r"\(\?(?:=|!|<=|<!|P=)|\\[1-9]")
TEXT_BYTES = 1000
HITS_PER_PATTERN = 20
MAX_MEMORY_BYTES = 256 * 1024 * 1024
Choice = TypeVar("Choice", bound=TextChoices)


class CatalogueError(Exception):
    """A catalogue is invalid; the message names file, line and problem."""


def latin_options() -> re2.Options:
    """Latin-1 makes every byte a character: any log matches, and spans are byte offsets."""
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.max_mem = MAX_MEMORY_BYTES
    options.log_errors = False
    return options


def _compile(regex: str) -> re2._Regexp:
    return re2.compile(f"(?m){regex}".encode(), latin_options())


def regex_fault(regex: str, example: str) -> str:
    """Return why a known error cannot have this expression: not linear, or its example is missed; else ""."""
    try:
        compiled = _compile(regex)
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


class Catalogue:
    """Patterns with their matcher, compiled once: a log classifier."""

    name = "catalogue"

    def __init__(self, patterns: Sequence[Pattern], version: str) -> None:
        """Compile valid patterns. Raises `CatalogueError` if they need too much memory together."""
        self.patterns, self.version = tuple(patterns), version
        self._regexes = [_compile(pattern.regex) for pattern in self.patterns]
        self._set = re2.Set.SearchSet(latin_options())
        try:
            for pattern in self.patterns:
                self._set.Add(f"(?m){pattern.regex}")
            self._set.Compile()
        except re2.error as error:
            raise CatalogueError(f"{len(self.patterns)} patterns do not compile together: {error}") from None

    def classify(self, facts: JobFacts, block: Block) -> Findings:
        """Return the known errors in `block`, in log order, at most 20 of each pattern.

        Only lines in which a pattern of their chunk matches are looked at one by one: a log may be all short lines.
        """
        seen: Counter[int] = Counter()
        hits: list[tuple[int, int, Hit]] = []
        offset, number = block.offset, block.first_line
        for raw in _chunks(block.data):
            chunk = clean(raw)
            found: dict[int, list[int]] = {}
            ends: list[int] = []
            for index in self._set.Match(chunk) or ():
                for start, line in matching_lines(self._regexes[index], chunk):
                    if seen[index] >= HITS_PER_PATTERN:
                        break
                    if start not in found:
                        found[start] = self._matching(line, facts.experiment)
                    if index in found[start]:
                        seen[index] += 1
                        ends = ends or [-1, *(newline.start() for newline in _NEWLINE.finditer(raw))]
                        row = chunk.count(b"\n", 0, start)
                        place = offset + ends[row] + 1
                        hit = self._hit(index, line, place, None if number is None else number + row, block.stream)
                        hits.append((place, index, hit))
            offset += len(raw)
            number = None if number is None else number + raw.count(b"\n")
        return Findings(hits=tuple(hit for *_, hit in sorted(hits, key=lambda hit: hit[:2])))

    def _matching(self, line: bytes, experiment: str) -> list[int]:
        """Return the patterns that match a line; of a line with noise the noise and the passive ones."""
        found = sorted(self._set.Match(line) or ()) if line else []
        found = [index for index in found if self.patterns[index].experiment in {"", experiment}]
        quiet = [index for index in found if self.patterns[index].passive or self.patterns[index].role is Role.NOISE]
        harmless = any(not self.patterns[index].passive for index in quiet)
        return quiet if harmless else found

    def _hit(self, index: int, line: bytes, offset: int, number: int | None, stream: Stream) -> Hit:
        match = self._regexes[index].search(line)
        start, end = match.span()
        fields = {text_of(name): text_of(value) for name, value in match.groupdict().items() if value}
        text = text_of(_excerpt(line, start, end))
        return Hit(self.patterns[index], number, offset, text, end - start, fields, stream)


def _chunks(data: bytes) -> Iterator[bytes]:
    """Yield chunks of whole lines, of about 64 kB."""
    position = 0
    while position < len(data):
        end = data.find(b"\n", min(position + CHUNK_BYTES, len(data)) - 1) + 1 or len(data)
        yield data[position:end]
        position = end


def matching_lines(regex: re2._Regexp, chunk: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield start and text of each line in which a match begins."""
    position = 0
    while position < len(chunk) and (match := regex.search(chunk, position)):
        start = chunk.rfind(b"\n", 0, match.start()) + 1
        end = chunk.find(b"\n", match.start())
        position = len(chunk) if end < 0 else end + 1
        yield start, chunk[start : position - (end >= 0)].rstrip(b"\r")


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
