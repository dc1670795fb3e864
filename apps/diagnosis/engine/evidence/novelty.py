"""Find lines that successful jobs of the same stage never write, by comparing hashes of templates.

A template is a line without its variable parts: numbers, words with numbers, hexadecimal IDs,
paths, names of days and months in dates. Its hash has 64 bits.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

from apps.diagnosis.engine.base import Block
from apps.diagnosis.engine.evidence.catalogue import text_of
from apps.diagnosis.engine.formats.plain_lines import clean

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Hashes = npt.NDArray[np.uint64]

#: Maximum number of templates kept per log.
MOST_TEMPLATES = 2_000
#: With fewer successful logs, no line is reported as novel.
LEAST_LOGS = 5
#: The part at the end of a log in which novel lines are searched.
TAIL_BYTES = 64 * 1024
LINE_BYTES = 1_000
_TEXT_BYTES = 300
_DAY = rb"(?:Mon|Tue(?:s)?|Wed(?:nes)?|Thu(?:rs)?|Fri|Sat(?:ur)?|Sun)(?:day)?\b"
_MONTH = (
    rb"(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?"
    rb"|Sept?(?:ember)?|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)\b"
)
#: Days and months before a number, paths, hexadecimal IDs, numbers, and words after the first
#: digit.
VARIES = re.compile(
    rb"\b(?:" + _DAY + rb",?\s+)?" + _MONTH + rb"\.?(?=\s+\d)"
    rb"|\b" + _DAY + rb",?(?=\s+\d)"
    rb"|(?:/[\w.+=@%~-]{1,255}){2,}/?|0x[0-9a-fA-F]+|\b[0-9a-fA-F]{8,}\b"
    rb"|[-+]?\.?\d[\w.,:+-]*"
)
#: The width of columns varies with the length of their numbers.
_SPACES = re.compile(rb"[ \t]+")
_ERROR = re.compile(
    rb"(?i)error|fatal|exception|fail|abort|killed|cannot|could not|denied|no such|not found|warn"
)
_DIGITS = b"0123456789"


class Templates:
    """Hashes of templates; lines that differ only in digits are masked once.

    `texts` holds the templates by hash.
    """

    def __init__(self) -> None:
        self._known: dict[bytes, int] = {}
        self.texts: dict[int, bytes] = {}

    def hash_of(self, line: bytes) -> int:
        """Return the hash of the template of a clean line; 0 for a line without words."""
        key = line[:LINE_BYTES].translate(None, _DIGITS)
        if key not in self._known:
            template = _SPACES.sub(b" ", VARIES.sub(b"*", line[:LINE_BYTES])).strip()
            # Digits are masked, so any byte above "0" belongs to a word.
            has_words = any(byte > ord("0") for byte in template)
            number = 0
            if has_words:
                number = int.from_bytes(blake2b(template, digest_size=8).digest(), "big")
                self.texts[number] = template
            self._known[key] = number
        return self._known[key]


def sample_of(blocks: Iterable[Block]) -> "Hashes":
    """Return the sorted templates of one job's logs; of very many, the first `MOST_TEMPLATES`."""
    import numpy as np

    templates = Templates()
    hashes: set[int] = set()
    for block in blocks:
        for line in clean(block.data).split(b"\n"):
            hashes.add(templates.hash_of(line))
            if len(hashes) > MOST_TEMPLATES:
                break
    return np.array(sorted(hashes - {0})[:MOST_TEMPLATES], np.uint64)


def templates_of(blocks: Iterable[Block]) -> dict[int, bytes]:
    """Return the templates of one job's logs by hash; of very many, only of the last lines."""
    texts: dict[int, bytes] = {}
    for block in blocks:
        templates = Templates()
        for line in reversed(clean(block.data).split(b"\n")):
            templates.hash_of(line)
            if len(templates.texts) >= MOST_TEMPLATES:
                break
        texts |= templates.texts
    return texts


def names_error(line: bytes) -> bool:
    """Return whether a line or template has a word such as error or cannot."""
    return bool(_ERROR.search(line[:LINE_BYTES]))


@dataclass(frozen=True, slots=True)
class Baseline:
    """The templates of some successful jobs, and how many of their `logs` contain each.

    `name` is the name of the stage.
    """

    name: str
    logs: int
    hashes: "Hashes"
    counts: "npt.NDArray[np.int64]"

    def knows(self, line_hash: int) -> bool:
        """Return whether any of the logs contains the template with this hash.

        The template of lines without words counts as known.
        """
        return line_hash == 0 or self.count_of(line_hash) > 0

    def count_of(self, line_hash: int) -> int:
        """Return how many of the logs contain the template with this hash."""
        import numpy as np

        index = int(np.searchsorted(self.hashes, np.uint64(line_hash)))
        if index < len(self.hashes) and int(self.hashes[index]) == line_hash:
            return int(self.counts[index])
        return 0


def baseline_of(name: str, samples: "Sequence[Hashes]") -> Baseline | None:
    """Count the templates of successful jobs; None if there are too few jobs."""
    import numpy as np

    if len(samples) < LEAST_LOGS:
        return None
    hashes, counts = np.unique(np.concatenate(samples), return_counts=True)
    return Baseline(name, len(samples), hashes, counts.astype(np.int64))


@dataclass(frozen=True, slots=True)
class NovelLine:
    """The first line of a template that no successful job writes, and its number of occurrences."""

    offset: int
    text: str
    times: int
    names_error: bool


def novel_rows(lines: Iterable[bytes], baseline: Baseline) -> Iterator[tuple[int, int]]:
    """Yield row and hash of each clean line whose template is not in the baseline."""
    templates = Templates()
    known: dict[int, bool] = {}
    for index, line in enumerate(lines):
        line_hash = templates.hash_of(line)
        if line_hash not in known:
            known[line_hash] = baseline.knows(line_hash)
        if not known[line_hash]:
            yield index, line_hash


def start_of_tail(data: bytes) -> int:
    """Return where the first whole line in the last `TAIL_BYTES` of a log starts."""
    if len(data) <= TAIL_BYTES:
        return 0
    return data.find(b"\n", len(data) - TAIL_BYTES) + 1


def novel_lines(block: Block, baseline: Baseline, *, most: int) -> list[NovelLine]:
    """Return the most relevant novel lines at the end of a log.

    Lines that name an error come first, then the last lines.
    """
    import numpy as np

    cut = start_of_tail(block.data)
    raw = block.data[cut:].split(b"\n")
    lines = clean(block.data[cut:]).split(b"\n")
    rows = list(novel_rows(lines, baseline))
    times = Counter(line_hash for _, line_hash in rows)
    first_rows: dict[int, int] = {}
    for row, line_hash in rows:
        first_rows.setdefault(line_hash, row)
    starts = np.concatenate(([0], np.cumsum([len(line) + 1 for line in raw])))
    novel = []
    for line_hash, row in first_rows.items():
        novel.append(
            NovelLine(
                offset=block.offset + cut + int(starts[row]),
                text=text_of(lines[row].strip()[:_TEXT_BYTES]),
                times=times[line_hash],
                names_error=names_error(lines[row]),
            )
        )
    return sorted(novel, key=lambda line: (not line.names_error, -line.offset))[:most]
