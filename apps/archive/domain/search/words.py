"""Words of a script for the index, and the modules that it loads.

Words are separated by blanks, quotes and operators of the shell: `gromacs/2023.3`, `--mem=4G`,
`OMP_NUM_THREADS=8`. Their parts are words too (`--mem`, `4G`, `gromacs`). Case is ignored.
"""

import re
from collections.abc import Iterator
from datetime import date, timedelta
from functools import lru_cache
from itertools import accumulate

#: Limits of what is indexed of a script: size of its beginning, and number of different words.
INDEXED_BYTES = 1_000_000
INDEXED_WORDS = 20_000
INDEXED_WORDS_BYTES = 900_000  # a tsvector holds 1 MB
LONGEST_WORD = 128
LONGEST_KEPT = 300  # maximum length of lines whose words are cached

# No match contains a blank, so the words of a line are the words of its blank-separated pieces.
_CHUNK = re.compile(r"-{0,2}\w[\w.+/-]*(?:=[^\s\x00-\x1f\x7f;|&<>()\"'`,]+)?")
_TOKEN = re.compile(r"\w[\w.+/-]*")
_STATEMENT = re.compile(r"[^;&|\n]+")
_FIRST_WORDS = r"\s*(?:(?:if|then|else|elif|do|while|until|!|[({])\s+)*"
_MODULES = re.compile(
    rf"{_FIRST_WORDS}(?:module\s+(?:-\S+\s+)*(?:load|add|try-load|swap|switch)"
    rf"|ml(?:\s+load)?)\s+(?P<names>[^#]+)"
)
_PRODUCT = re.compile(
    rf"{_FIRST_WORDS}setup\s+(?:-\w\s+)*(?P<name>[A-Za-z]\w*)"
    r"(?:\s+(?P<version>v\d\w*))?(?![\w(./=])"
)
_SPACK = re.compile(rf"{_FIRST_WORDS}spack\s+load\s+(?P<names>[^#]+)")
_MODULE_NAME = re.compile(r"[\w.+/-]+")
_SPEC = re.compile(r"(?<!\S)([A-Za-z][\w.-]*)(?:@([\w.-]+))?(?![\w.=-])")
# Prefixes that no word of a script starts with.
_LOADED = ":"
_DAY = "@"
_WEEK = "@w"


def as_text(script: bytes) -> str:
    return script[:INDEXED_BYTES].decode("utf-8", "backslashreplace")


def words_of(script: str) -> set[str]:
    """Return all words by which a script can be found."""
    script_words: set[str] = set()
    for line in script.split("\n"):
        # Scripts share most of their lines, so the words of short lines are cached.
        if len(line) <= LONGEST_KEPT:
            script_words |= _words_and_modules(line)
        else:
            script_words |= _words_and_modules.__wrapped__(line)
        if len(script_words) > INDEXED_WORDS:
            break

    cut = {word[:LONGEST_WORD] for word in script_words}
    if len(cut) * LONGEST_WORD * 4 < INDEXED_WORDS_BYTES:
        return cut
    ends = accumulate(len(word.encode()) for word in sorted(cut))
    return {word for word, end in zip(sorted(cut), ends, strict=True) if end < INDEXED_WORDS_BYTES}


@lru_cache(maxsize=10_000)
def _words_and_modules(line: str) -> frozenset[str]:
    line_words = words_in(line)
    for module in modules_in(line):
        name = module.lower()
        line_words.add(_LOADED + name)
        line_words.add(_LOADED + name.partition("/")[0])
    return frozenset(line_words)


def words_in(line: str) -> set[str]:
    """Return the words of a line and their parts."""
    line_words = set()
    for chunk in split_words(line):
        line_words.add(chunk)
        line_words.update(_parts(chunk))
    return line_words


def split_words(text: str) -> Iterator[str]:
    """Yield the whole words of a text, without their parts."""
    for match in _CHUNK.finditer(text.lower()):
        yield match[0].rstrip("./-") or match[0]


def start_of_word(text: str) -> str:
    """Return how the word begins that begins where the text does; empty if none does."""
    match = _CHUNK.match(text.lower())
    return (match[0].rstrip("./-") or match[0]) if match else ""


def _parts(chunk: str) -> Iterator[str]:
    name, equals, value = chunk.partition("=")
    if equals:
        yield name
    for match in _TOKEN.finditer(value if name.startswith("-") else chunk):
        token = match[0].rstrip("./-") or match[0]
        yield token
        if "/" in token:
            yield from filter(None, token.split("/"))


def same_blanks(line: str) -> str:
    return " ".join(line.split())


def modules_in(line: str) -> list[str]:
    """Return the modules that a line loads as `name/version`, also UPS products, Spack packages."""
    modules: list[str] = []
    for statement in _STATEMENT.findall(line):
        modules.extend(_modules_in(statement))
    return modules


def _modules_in(statement: str) -> Iterator[str]:
    if match := _MODULES.match(statement):
        yield from (
            name for name in _MODULE_NAME.findall(match["names"]) if not name.startswith("-")
        )
    elif match := _PRODUCT.match(statement):
        yield "/".join(filter(None, match.groups()))
    elif match := _SPACK.match(statement):
        yield from ("/".join(filter(None, spec)) for spec in _SPEC.findall(match["names"]))


def module_word(name: str) -> str:
    """Return the index word of a loaded module, of any version if `name` has none."""
    return _LOADED + name.strip().lower()


def day_word(day: date) -> str:
    return f"{_DAY}{day.toordinal()}"


def week_words(first: date, last: date) -> list[str]:
    """Return the index words of the weeks that contain these days."""
    return [f"{_WEEK}{week}" for week in range(first.toordinal() // 7, last.toordinal() // 7 + 1)]


def words_of_days(first: date, last: date) -> list[str]:
    """Return words of which every script of these days has one.

    Scripts of other days in the same weeks may have them too.
    """
    if last - first > timedelta(days=7):
        return week_words(first, last)
    return [
        day_word(date.fromordinal(day)) for day in range(first.toordinal(), last.toordinal() + 1)
    ]


def query_for(text: str) -> list[str]:
    """Return the terms of a tsquery for words typed by a user.

    `gromacs/20*` matches every word with this prefix.
    """
    terms = []
    for piece in text.split():
        if piece.endswith("*") and (start := _CHUNK.fullmatch(piece[:-1].lower())):
            terms.append(f"{quote_lexeme(start[0])}:*")
        else:
            terms += [quote_lexeme(word[:LONGEST_WORD]) for word in split_words(piece)]
    return terms


def quote_lexeme(word: str) -> str:
    """Return a word as a lexeme of a tsquery."""
    return "'" + word.replace("\\", "\\\\").replace("'", "''") + "'"


def unquote_lexeme(term: str) -> str:
    """Return the word from which `quote_lexeme` made this lexeme."""
    return term[1:-1].replace("''", "'").replace("\\\\", "\\")
