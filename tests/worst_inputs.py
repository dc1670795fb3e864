"""Inputs that are slow to read: repeated parts, long words,
and what the structure of a regular expression repeats.
"""

import random
import re
import string
from re import _constants as sre
from re import _parser as parser
from typing import NamedTuple

#: The longest input, in characters.
SIZE = 200_000
_CHARACTERS = [
    "a",
    "0",
    " ",
    "\n",
    "\t",
    "\0",
    "(",
    "[",
    "{",
    '"',
    "'",
    "\\",
    "/",
    "=",
    "-",
    ".",
    ",",
    "<",
    "&",
    "%",
]
_CHARACTERS += ["$", "é"]
#: What is repeated: letters, digits, blanks, each sign, openings that never close, prefixes of what
#: is looked for.
PIECES = [
    "a",
    "A",
    "0",
    "_",
    " ",
    "\t",
    "\n",
    "\r\n",
    "\\",
    "/",
    "-",
    "=",
    ":",
    ";",
    ",",
    ".",
    "%",
    "$",
    "@",
    "#",
    "+",
    '"',
    "'",
    "`",
    "(",
    "[",
    "{",
    "<",
    ">",
    "&",
    "|",
    "~",
    "!",
    "*",
    "?",
    "^",
    "\0",
    "é",
    "\ud800",
    "a ",
    " a",
    "a\n",
    " \n",
    "a=",
    "a=b ",
    "A=1,",
    "A=1;",
    "'a",
    '"a',
    "'a' ",
    "''",
    '""',
    "\\'",
    '\\"',
    "\\\\",
    "--a",
    "--a=",
    "-a ",
    "a/",
    "/a",
    "/tmp/",
    "../",
    "20",
    "2026-11-20 ",
    "12:00:00",
    "1-",
    "1,",
    "1:",
    "deadbeef",
    "$(",
    "${",
    "${a}",
    "<<a",
    "<<a\n",
    "<a>",
    "&lt;",
    "[[",
    "{{",
    "%%",
    "%j",
    "a.b.",
    "a@b",
    "://",
    "a://b:",
    "eyJ",
    "-----BEGIN ",
    "module load ",
    "#PBS -o ",
    "#SBATCH -o ",
    "BASH_FUNC_",
    "hash.1/job.1",
    "<masked:",
    "if ",
    "59:",
    "1h ",
    "1.",
    "1_000",
    "1'",
    "1e",
    "@a",
    "v1",
    "\u2028",
    "\ufeff",
    "\u0130",
    "{a}",
    "(a*)*",
    "_part1of1",
]


class Input(NamedTuple):
    """A text of any size: a part that is repeated, and what comes before and after it."""

    before: str
    part: str
    after: str = ""

    def __str__(self) -> str:
        return f"{self.before[:40]!r} {self.part[:40]!r}… {self.after!r}"

    def text(self, size: int = SIZE) -> str:
        """Return a text of about this size: the part is whole where the size has room for it."""
        room = size - len(self.before) - len(self.after)
        repeated = self.part * max(1, room // len(self.part))
        return self.before + repeated[: max(0, room)] + self.after


def pumped(piece: str) -> Input:
    """Return an input made of a piece; the end fits nothing."""
    return Input("a", piece, "\x01")


def long_words() -> list[Input]:
    """Return inputs in which nothing repeats: as one word, after what may look for its end,
    and with blanks.
    """
    word = "".join(random.Random(1).choices(string.ascii_lowercase, k=SIZE))
    return [
        Input("", word),
        Input("<<", word),
        Input("A=", word),
        Input("", word.replace("a", " ")),
    ]


def shapes(*words: str) -> list[Input]:
    """Return inputs in the usual shapes, and of the words of a format: alone, in lines,
    and cut off.
    """
    inputs = [Input("", part) for part in (*_CHARACTERS, "a" * 70 + "\n", "a\n", "a ")]
    for word in words:
        inputs += [Input("", word), Input("", f"{word}\n"), Input(word, "a"), Input(word, " ")]
        if len(word) > 1:
            inputs.append(Input("", word[:-1]))
    return inputs


def worst_inputs(pattern: re.Pattern[str] | re.Pattern[bytes]) -> list[Input]:
    """Return inputs that a pattern matches for long, and then does not match."""
    source = (
        pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    )
    repeats: list[tuple[str, str]] = []
    sample = _sample(parser.parse(source, pattern.flags & ~re.DEBUG & ~re.UNICODE), "", repeats)
    inputs = [Input("", part) for part in (sample, sample[:-1]) if part]
    for before, part in repeats:
        inputs += [
            Input("", part),
            Input(before, part),
            Input(before, part, "\0!"),
            Input("", part, "\n!"),
        ]
        if before:
            inputs.append(Input("", before + part * 3))
    return list(dict.fromkeys(inputs))


def _sample(nodes: object, before: str, repeats: list[tuple[str, str]]) -> str:
    """Return a text that a parsed pattern may match;
    note each repeated part with what comes before it.
    """
    text = ""
    for kind, value in nodes:
        text += _piece(kind, value, before + text, repeats)
    return text


def _piece(kind: object, value: object, before: str, repeats: list[tuple[str, str]]) -> str:
    if kind is sre.LITERAL:
        return chr(value)
    if kind in {sre.NOT_LITERAL, sre.ANY}:
        return "b" if value == ord("a") else "a"
    if kind is sre.IN:
        return _member(value)
    if kind in {sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT}:
        low, high, inner = value
        part = _sample(inner, before, repeats)
        if high > 1:
            repeats.append((before, part or "a"))
        return part * max(low, 1 if high else 0)
    if kind is sre.SUBPATTERN:
        return _sample(value[-1], before, repeats)
    if kind is sre.ATOMIC_GROUP:
        return _sample(value, before, repeats)
    if kind is sre.BRANCH:
        branches = [_sample(branch, before, repeats) for branch in value[1]]
        return max(branches, key=len)
    return ""


def _member(members: list[tuple[object, object]]) -> str:
    categories = {sre.CATEGORY_DIGIT: "0", sre.CATEGORY_SPACE: " ", sre.CATEGORY_WORD: "a"}
    refused = members[0][0] is sre.NEGATE
    for kind, value in members[refused:]:
        if refused:
            continue
        if kind is sre.LITERAL:
            return chr(value)
        if kind is sre.RANGE:
            return chr(value[0])
        if kind is sre.CATEGORY:
            return categories.get(value, "a")
    taken = {chr(value) for kind, value in members if kind is sre.LITERAL}
    return next(letter for letter in "a0x -" if letter not in taken)
