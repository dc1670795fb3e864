"""Characters that are invisible or make text misleading: control, direction, zero width."""

import re
import unicodedata
from collections.abc import Callable

# Tab and newline are layout. A lone surrogate is not a character and cannot be encoded.
HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ud800-\udfff\ufeff\uffa0"
    "\ufff0-\ufffb\ufffe\uffff"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)


def mark_hidden(text: str, mark: Callable[[str, str], str] = "⟨{}⟩".format) -> str:
    """Replace each hidden character by `mark(code point, name)`, such as `U+202E`.

    The name may be empty. CRLF becomes LF.
    """
    marks: dict[str, str] = {}

    def marked(match: re.Match[str]) -> str:
        character = match[0]
        if character not in marks:
            marks[character] = mark(f"U+{ord(character):04X}", unicodedata.name(character, ""))
        return marks[character]

    return HIDDEN.sub(marked, text.replace("\r\n", "\n"))


def first_characters(text: str, most: int) -> str:
    """Return at most `most` characters; a text that is cut ends after a word, with `…`.

    A word that is longer than half of them is cut itself.
    """
    if len(text) <= most:
        return text
    beginning = text[: most - 2]
    last_blank = beginning.rfind(" ")
    if last_blank > most // 2:
        beginning = beginning[:last_blank]
    return f"{beginning.rstrip()} …"
