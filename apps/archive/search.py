"""Finding jobs by what is in their scripts, newest first, and the lines that say why.

Words come from the index. Any other text is looked for in the scripts themselves, newest job first, for no longer
than `TEXT_SECONDS` and in those of no more than `TEXT_JOBS`: the page says how far it came, and the next goes on there.
"""

import re
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from datetime import time as clock
from itertools import islice

from django.db import OperationalError, connection, transaction
from django.db.models import QuerySet
from psycopg.errors import QueryCanceled

from apps.archive import words
from apps.archive.contents import printable
from apps.archive.models import ArchivedJob, Blob, ScriptWords
from apps.archive.selectors import DamagedContent, read_start
from apps.core.errors import DomainError
from apps.core.pagination import Found

#: The days looked at for words, one after the other, until a page is full; what is older comes last.
WINDOWS_DAYS = (1, 7, 56)
TEXT_SECONDS = 0.15
TEXT_JOBS = 5_000
STATEMENT_MS = 4_000
_STEP = 250
HIT_LINES = 3
HIT_LETTERS = 240


class TooWide(DomainError):
    """The database was stopped, as the question was too wide for a page; the message says what to do."""


@dataclass(frozen=True)
class Search:
    """What is to be in a script: words, a line, a module that it loads, any text. All that is given must be there."""

    words: str = ""
    line: str = ""
    module: str = ""
    text: str = ""

    @property
    def terms(self) -> list[str]:
        """Return the terms of a tsquery."""
        found = words.query_for(self.words)
        if self.line.strip():
            found.append(words.quoted(words.line_word(self.line)))
        if self.module.strip():
            found.append(words.quoted(words.module_word(self.module)))
        return found

    @property
    def is_empty(self) -> bool:
        return not (self.terms or self.text)


def find(rows: QuerySet[ArchivedJob], count: int, *, search: Search) -> Found[ArchivedJob]:
    """Return the first `count` of `rows`, which come newest first, whose scripts fit. Raises `TooWide`."""
    with _in_time():
        if search.text:
            return _by_text(rows, count, search)
        terms = search.terms
        return Found(list(_by_words(rows, count, terms) if terms else rows[:count]))


@contextmanager
def _in_time() -> Iterator[None]:
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET LOCAL statement_timeout = %s", [STATEMENT_MS])
            yield
            cursor.execute("SET LOCAL statement_timeout TO DEFAULT")
    except OperationalError as error:
        if isinstance(error.__cause__, QueryCanceled):
            raise TooWide("This takes too long. Narrow it down, by a user, a request or days.") from error
        raise


def _by_words(rows: QuerySet[ArchivedJob], count: int, terms: list[str]) -> Iterator[ArchivedJob]:
    for window, days in _windows(rows):
        if count <= 0:
            return
        found = list(with_words(window, terms, days=days)[:count])
        count -= len(found)
        yield from found


def with_words(
    rows: QuerySet[ArchivedJob], terms: Sequence[str], *, days: Sequence[datetime] = ()
) -> QuerySet[ArchivedJob]:
    """Keep the jobs, submitted on one of `days` if any are given, whose scripts have all of the terms."""
    among = [words.any_of(words.day_word(day) for day in days)] if days else []
    scripts = ScriptWords.objects.filter(words__matches=words.all_of([*terms, *among]))
    return rows.filter(script__in=scripts.values("script"))


def _windows(rows: QuerySet[ArchivedJob]) -> Iterator[tuple[QuerySet[ArchivedJob], list[datetime]]]:
    """Cut the rows by days of submission, the newest first; the last part is all the rest, and has no days."""
    newest = rows.values_list("submitted_at", flat=True).first()
    if newest is None:
        return
    start = datetime.combine(newest.astimezone(UTC).date(), clock.min, UTC) + timedelta(days=1)
    for length in WINDOWS_DAYS:
        try:
            days = [start - timedelta(days=back) for back in range(1, length + 1)]
        except OverflowError:
            break
        yield rows.filter(submitted_at__gte=days[-1], submitted_at__lt=start), days
        start = days[-1]
    yield rows.filter(submitted_at__lt=start), []


def _by_text(rows: QuerySet[ArchivedJob], count: int, search: Search) -> Found[ArchivedJob]:
    """Look into the scripts themselves, as far as time allows."""
    end = time.monotonic() + TEXT_SECONDS
    among = with_words(rows, search.terms) if search.terms else rows
    jobs = list(among.values_list("pk", "submitted_at", "script_id")[:TEXT_JOBS])
    fits: dict[int, bool] = {}
    keys: list[int] = []
    looked_at = 0
    for first in range(0, len(jobs), _STEP):
        if first and time.monotonic() > end:
            break
        part = jobs[first : first + _STEP]
        fits |= _fitting({script for _, _, script in part} - fits.keys(), search.text)
        keys += [pk for pk, _, script in part if fits.get(script)]
        looked_at = first + len(part)
        if len(keys) >= count:
            break
    all_seen = looked_at == len(jobs) < TEXT_JOBS or len(keys) >= count
    stopped_at = None if all_seen or not looked_at else (jobs[looked_at - 1][1], jobs[looked_at - 1][0])
    return Found(list(rows.filter(pk__in=keys[:count])), stopped_at)


def _fitting(scripts: set[int], text: str) -> dict[int, bool]:
    wanted = text.encode().lower()
    return {pk: wanted in start.lower() for pk, start in _starts(scripts)}


def _starts(scripts: Iterable[int]) -> Iterator[tuple[int, bytes]]:
    """Yield the beginning of each script; damaged ones are left out."""
    for blob in Blob.objects.filter(pk__in=scripts):
        with suppress(DamagedContent):
            yield blob.pk, read_start(blob, words.INDEXED_BYTES)


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a line; `hit` where it is what was looked for."""

    text: str
    hit: bool


@dataclass(frozen=True, slots=True)
class Hit:
    """A line of a script that says why the script was found."""

    number: int
    parts: list[Part]

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts)


def hits_in(jobs: Iterable[ArchivedJob], search: Search) -> dict[int, list[Hit]]:
    """Return the first lines with a hit of each script, by the script's key."""
    if search.is_empty:
        return {}
    matcher = _Matcher(search)
    return {pk: list(islice(matcher.hits(start), HIT_LINES)) for pk, start in _starts({job.script_id for job in jobs})}


class _Matcher:
    """Finds in lines what a search looks for."""

    def __init__(self, search: Search) -> None:
        pieces = search.words.split()
        self._starts = [piece[:-1].lower() for piece in pieces if piece.endswith("*")]
        self._words = {chunk for piece in pieces if not piece.endswith("*") for chunk in words.chunks(piece)}
        self._line = words.same_blanks(search.line)
        self._module = search.module.strip().lower()
        self._text = search.text.lower()

    def hits(self, script: bytes) -> Iterator[Hit]:
        for number, raw in enumerate(script.split(b"\n"), start=1):
            line = printable(raw)
            if found := self._found(line):
                yield Hit(number, _cut(line, found))

    def _found(self, line: str) -> set[str]:
        """Return the texts to mark in a line."""
        small = line.lower()
        found = {self._text} if self._text and self._text in small else set()
        if self._line and words.same_blanks(line) == self._line:
            found.add(small.strip())
        if self._module:
            names = {name.lower() for name in words.modules_in(line)}
            found |= {name for name in names if self._module in (name, name.partition("/")[0])}
        if any(word in small for word in self._words) or any(start in small for start in self._starts):
            there = words.words_in(line)
            found |= self._words & there
            found |= {word for word in there for start in self._starts if start and word.startswith(start)}
        return found


def _cut(line: str, found: set[str]) -> list[Part]:
    """Cut a line into what was found and the rest; a long line is cut off around its first hit."""
    pattern = re.compile("|".join(map(re.escape, sorted(found, key=len, reverse=True))), re.IGNORECASE)
    first = pattern.search(line)
    start = max(0, first.start() - HIT_LETTERS // 4) if first and len(line) > HIT_LETTERS else 0
    shown = line[start : start + HIT_LETTERS]
    parts, end = [Part("…", hit=False)] if start else [], 0
    for hit in pattern.finditer(shown):
        parts += [Part(shown[end : hit.start()], hit=False), Part(hit[0], hit=True)]
        end = hit.end()
    rest = shown[end:] + ("…" if start + HIT_LETTERS < len(line) else "")
    return [part for part in [*parts, Part(rest, hit=False)] if part.text]
