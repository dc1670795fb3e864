"""Search for jobs by the text of their scripts, newest first, with the matching lines.

Words are looked up in the index. Other text is searched in the scripts, newest job first, for at
most `READ_SECONDS` and in at most `READ_JOBS` jobs: the page shows how far the search got, and the
next page continues there.
"""

import re
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice

from django.db import OperationalError, connection, transaction
from django.db.models import QuerySet
from psycopg.errors import QueryCanceled

from apps.archive.domain.search import words
from apps.archive.domain.search.word_search import newest_with_words
from apps.archive.domain.shown_contents import SHOWN_BYTES, escape_unprintable
from apps.archive.domain.store.contents import DamagedContent, read_start
from apps.archive.models import ArchivedJob, Blob
from apps.core.domain.pagination import FoundRows
from apps.core.errors import DomainError

READ_SECONDS = 0.12
READ_JOBS = 5_000
STATEMENT_MS = 4_000
_STEP = 100
HIT_LINES = 3
HIT_LETTERS = 240


class TooWide(DomainError):
    """The search was too broad for a page, and was cancelled; the message says what to do."""


@dataclass(frozen=True)
class ScriptSearch:
    """What a script must contain: words, a line, a loaded module, or any text.

    All fields that are set must match.
    """

    words: str = ""
    line: str = ""
    module: str = ""
    text: str = ""

    @property
    def terms(self) -> list[str]:
        """Return the terms of a tsquery."""
        terms = words.query_for(self.words)
        terms += [words.quote_lexeme(chunk) for chunk in words.split_words(self.line)]
        if self.module.strip():
            terms.append(words.quote_lexeme(words.module_word(self.module)))
        return terms

    @property
    def is_empty(self) -> bool:
        return not (self.terms or self.text)


def find(
    archived_jobs: QuerySet[ArchivedJob], count: int, *, search: ScriptSearch
) -> FoundRows[ArchivedJob]:
    """Return the first `count` of `rows`, given newest first, whose scripts match.

    Raises `TooWide`.
    """
    with in_time():
        if search.text or search.line:
            return _by_reading(archived_jobs, count, search)
        if terms := search.terms:
            keys = list(newest_with_words(archived_jobs.values_list("pk", flat=True), count, terms))
            return FoundRows(list(archived_jobs.filter(pk__in=keys)))
        return FoundRows(list(archived_jobs[:count]))


@contextmanager
def in_time() -> Iterator[None]:
    """Limit the statements of a search in time, and let them use indexes. Raises `TooWide`."""
    inner = connection.in_atomic_block
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            # Long words are stored apart from their rows, so the planner takes a sequential scan
            # for cheap.
            if inner:
                cursor.execute("SELECT current_setting('statement_timeout')")
                before = cursor.fetchone()[0]
            cursor.execute(
                f"SET LOCAL statement_timeout = {STATEMENT_MS}; SET LOCAL enable_seqscan = off"
            )
            yield
            if inner:  # otherwise they end with the transaction
                cursor.execute("SELECT set_config('statement_timeout', %s, true)", [before])
                cursor.execute("SET LOCAL enable_seqscan TO DEFAULT")
    except OperationalError as error:
        if isinstance(error.__cause__, QueryCanceled):
            raise TooWide(
                "This takes too long. Narrow it down, by a user, a request or days."
            ) from error
        raise


def _by_reading(
    archived_jobs: QuerySet[ArchivedJob], count: int, search: ScriptSearch
) -> FoundRows[ArchivedJob]:
    """Search the scripts themselves as far as time allows, narrowed down by the index of words."""
    end = time.monotonic() + READ_SECONDS
    facts = archived_jobs.values_list("pk", "submitted_at", "script_id")
    if search.terms:
        jobs = newest_with_words(facts, READ_JOBS, search.terms)
    else:
        jobs = iter(facts[:READ_JOBS])
    fits: dict[int, bool] = {}
    keys: list[int] = []
    last = None
    seen = 0
    while len(keys) < count and (part := list(islice(jobs, _STEP))):
        fits |= _fitting({script for _, _, script in part} - fits.keys(), search)
        keys += [pk for pk, _, script in part if fits.get(script)]
        last = part[-1]
        seen += len(part)
        if time.monotonic() > end:
            break
    more = len(keys) < count and (seen >= READ_JOBS or next(jobs, None) is not None)
    stopped_at = (last[1], last[0]) if more and last else None
    return FoundRows(list(archived_jobs.filter(pk__in=keys[:count])), stopped_at)


def _fitting(scripts: set[int], search: ScriptSearch) -> dict[int, bool]:
    """Return for each script, by key, whether it contains the text and the line of a search."""
    text = search.text.encode().lower()
    # Indentation and the number of blanks between words may differ.
    pieces = [re.escape(piece.encode()) for piece in search.line.split()]
    line = re.compile(rb"(?m)^[^\S\n]*" + rb"[^\S\n]+".join(pieces) + rb"[^\S\n]*$")
    fits = {}
    for pk, start in _starts(scripts):
        fits[pk] = text in start.lower() and (not pieces or line.search(start) is not None)
    return fits


def _starts(
    scripts: Iterable[int], size_bytes: int = words.INDEXED_BYTES
) -> Iterator[tuple[int, bytes]]:
    """Yield the beginning of each script, except damaged ones."""
    for blob in Blob.objects.filter(pk__in=scripts):
        with suppress(DamagedContent):
            yield blob.pk, read_start(blob, size_bytes)


@dataclass(frozen=True, slots=True)
class LinePart:
    """A part of a line; `hit` if it matches the search."""

    text: str
    hit: bool = False


@dataclass(frozen=True, slots=True)
class ScriptHit:
    """A line of a script that matches the search."""

    number: int
    parts: list[LinePart]

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts)


def hits_in(jobs: Iterable[ArchivedJob], search: ScriptSearch) -> dict[int, list[ScriptHit]]:
    """Return the first matching lines of each script, by the script's key."""
    if search.is_empty:
        return {}
    matcher = _Matcher(search)
    starts = _starts({job.script_id for job in jobs}, SHOWN_BYTES)  # what a job's page shows
    return {pk: list(islice(matcher.hits(start), HIT_LINES)) for pk, start in starts}


class _Matcher:
    """Finds the matches of a search in lines."""

    def __init__(self, search: ScriptSearch) -> None:
        self._starts: list[str] = []
        self._words: set[str] = set()
        for piece in search.words.split():
            if piece.endswith("*"):
                self._starts.append(piece[:-1].lower())
            else:
                self._words.update(words.split_words(piece))
        self._line = words.same_blanks(search.line)
        self._module = search.module.strip().lower()
        self._text = search.text.lower()

    def hits(self, script: bytes) -> Iterator[ScriptHit]:
        for number, raw in enumerate(script.split(b"\n"), start=1):
            line = escape_unprintable(raw)
            if texts := self._texts_to_mark(line):
                yield ScriptHit(number, _cut(line, texts))

    def _texts_to_mark(self, line: str) -> set[str]:
        """Return the texts in a line that match the search, in lower case."""
        lowered = line.lower()
        texts = set()
        if self._text and self._text in lowered:
            texts.add(self._text)
        if self._line and words.same_blanks(line) == self._line:
            texts.add(lowered.strip())
        if self._module:
            texts |= self._module_texts(line)

        # Splitting a line into words takes longer than checking that it contains none of them.
        if any(word in lowered for word in self._words) or any(
            start in lowered for start in self._starts
        ):
            line_words = words.words_in(line)
            texts |= self._words & line_words
            for start in filter(None, self._starts):
                texts.update(word for word in line_words if word.startswith(start))
        return texts

    def _module_texts(self, line: str) -> set[str]:
        """Return the name of the module if the line loads it, or its parts if they stand apart."""
        lowered = line.lower()
        texts = set()
        for module in words.modules_in(line):
            name = module.lower()
            if self._module in (name, name.partition("/")[0]):
                texts.update([name] if name in lowered else name.split("/"))
        return texts


def _cut(line: str, texts: set[str]) -> list[LinePart]:
    """Split a line into matches and other text; cut a long line around its first match."""
    longest_first = sorted(texts, key=len, reverse=True)
    pattern = re.compile("|".join(map(re.escape, longest_first)), re.IGNORECASE)

    start = 0
    first = pattern.search(line)
    if first and len(line) > HIT_LETTERS:
        start = max(0, first.start() - HIT_LETTERS // 4)
    shown = line[start : start + HIT_LETTERS]

    parts = []
    if start:
        parts.append(LinePart("…"))
    end = 0
    for hit in pattern.finditer(shown):
        parts.append(LinePart(shown[end : hit.start()]))
        parts.append(LinePart(hit[0], hit=True))
        end = hit.end()

    last = shown[end:]
    if start + HIT_LETTERS < len(line):
        last += "…"
    parts.append(LinePart(last))
    return [part for part in parts if part.text]
