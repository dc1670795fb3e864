"""The catalogue of known errors: rows of a CSV file, checked at load, matched in linear time by RE2."""

import csv
import hashlib
import io
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TypeVar

import re2
from django.db.models import TextChoices

from apps.diagnosis.engine.base import Block, Findings, Hit, JobFacts, Pattern
from apps.diagnosis.enums import Advice, Category, Role, Stream

BUILT_IN = Path(__file__).with_name("catalogue.csv")
COLUMNS = ("id", "category", "service", "regex", "advice", "role", "where", "example")
CHUNK_BYTES = 64 * 1024
TEXT_BYTES = 1000
HITS_PER_PATTERN = 20
MAX_MEMORY_BYTES = 256 * 1024 * 1024
Word = TypeVar("Word", bound=TextChoices)


class CatalogueError(Exception):
    """A catalogue cannot be used; the message names file, line and fault."""


def _options() -> re2.Options:
    """Latin-1 makes every byte a character: any log matches, and spans are byte offsets."""
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.max_mem = MAX_MEMORY_BYTES
    options.log_errors = False
    return options


def _compile(regex: str) -> re2._Regexp:
    return re2.compile(f"(?m){regex}".encode(), _options())


def _word(words: type[Word], row: dict[str, str], column: str) -> Word:
    try:
        return words(row[column])
    except ValueError:
        known = ", ".join(words)
        raise CatalogueError(f"{column} {row[column]!r} is none of: {known}") from None


def _pattern(row: dict[str, str]) -> Pattern:
    """Make one row a pattern. Raises `CatalogueError` with what is wrong with it."""
    if not row["id"]:
        raise CatalogueError("no id")
    try:
        regex = _compile(row["regex"])
    except re2.error as error:
        raise CatalogueError(f"regex of {row['id']} does not compile in RE2: {error}") from None
    if regex.search(b""):
        raise CatalogueError(f"regex of {row['id']} matches the empty line")
    if not regex.search(row["example"].encode()):
        raise CatalogueError(f"regex of {row['id']} does not match its example")
    return Pattern(
        id=row["id"],
        category=_word(Category, row, "category"),
        service=row["service"],
        regex=row["regex"],
        advice=_word(Advice, row, "advice"),
        role=_word(Role, row, "role"),
        where=row["where"],
        example=row["example"],
    )


def read_patterns(text: str, name: str) -> tuple[Pattern, ...]:
    """Read and check all rows of a catalogue. Raises `CatalogueError` naming `name` and the line."""
    rows = csv.DictReader(io.StringIO(text, newline=""))
    if tuple(rows.fieldnames or ()) != COLUMNS:
        raise CatalogueError(f"{name}, line 1: the columns must be {','.join(COLUMNS)}")
    patterns: dict[str, Pattern] = {}
    for row in rows:
        try:
            if None in row or None in row.values():
                raise CatalogueError(f"{len(COLUMNS)} columns are needed")
            pattern = _pattern(row)
            if pattern.id in patterns:
                raise CatalogueError(f"id {pattern.id} is there twice")
        except CatalogueError as error:
            raise CatalogueError(f"{name}, line {rows.line_num}: {error}") from None
        patterns[pattern.id] = pattern
    if not patterns:
        raise CatalogueError(f"{name}: no patterns")
    return tuple(patterns.values())


class Catalogue:
    """Checked patterns with their matcher; as a log classifier it is the built-in one."""

    name = "catalogue"

    def __init__(self, path: Path = BUILT_IN) -> None:
        try:
            content = path.read_bytes()
            self.patterns = read_patterns(content.decode(), path.name)
        except (OSError, UnicodeDecodeError) as error:
            raise CatalogueError(f"{path}: {error}") from None
        self.version = hashlib.sha256(content).hexdigest()[:12]
        self._regexes = [_compile(pattern.regex) for pattern in self.patterns]
        self._set = re2.Set.SearchSet(_options())
        for pattern in self.patterns:
            self._set.Add(f"(?m){pattern.regex}")
        self._set.Compile()

    def classify(self, facts: JobFacts, block: Block) -> Findings:
        """Return the known errors of `block`, in their order in the log, at most 20 of each."""
        seen: Counter[int] = Counter()
        hits = []
        for offset, line, number in self._lines_of_hit_chunks(block):
            for index in self._matching(line):
                seen[index] += 1
                if seen[index] <= HITS_PER_PATTERN:
                    hits.append(self._hit(index, line, block.offset + offset, number, block.stream))
        return Findings(hits=tuple(hits))

    def _lines_of_hit_chunks(self, block: Block) -> Iterator[tuple[int, bytes, int | None]]:
        """Yield offset in the block, text and number of each line of each chunk in which something matches."""
        data, position, number = block.data, 0, block.first_line
        while position < len(data):
            end = data.find(b"\n", min(position + CHUNK_BYTES, len(data)) - 1) + 1 or len(data)
            chunk = data[position:end]
            if self._set.Match(chunk):
                offset = position
                for row, line in enumerate(chunk.split(b"\n")):
                    yield offset, line.rstrip(b"\r"), None if number is None else number + row
                    offset += len(line) + 1
            if number is not None:
                number += chunk.count(b"\n")
            position = end

    def _matching(self, line: bytes) -> list[int]:
        """Return the patterns that match a line; where one of them is noise, the line is harmless: only those."""
        found = sorted(self._set.Match(line) or ()) if line else []
        noise = [index for index in found if self.patterns[index].role is Role.NOISE]
        return noise or found

    def _hit(self, index: int, line: bytes, offset: int, number: int | None, stream: Stream) -> Hit:
        match = self._regexes[index].search(line)
        start, end = match.span()
        fields = {text_of(name): text_of(value) for name, value in match.groupdict().items() if value}
        text = text_of(_around(line, start, end))
        return Hit(self.patterns[index], number, offset, text, end - start, fields, stream)


def _around(line: bytes, start: int, end: int) -> bytes:
    """Cut a long line to what stands around its match."""
    if len(line) <= TEXT_BYTES:
        return line
    left = max(0, min(start, start - (TEXT_BYTES - (end - start)) // 2))
    return line[left : left + TEXT_BYTES]


def text_of(data: bytes) -> str:
    """Return bytes of a log as text that a database and a page can hold: what is no UTF-8, or NUL, is replaced."""
    return data.decode(errors="replace").replace("\x00", "\ufffd")


@cache
def built_in() -> Catalogue:
    """Return the project's own catalogue, loaded once in a process."""
    return Catalogue()
