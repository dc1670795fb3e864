"""Fingerprints of failures: equal for failures that belong to one group."""

import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

import re2

from apps.diagnosis.engine.base import Block, EngineVerdict, Hit
from apps.diagnosis.engine.evidence.matchers import latin_options
from apps.diagnosis.engine.formats.chunks import matching_lines
from apps.diagnosis.engine.formats.plain_lines import clean
from apps.diagnosis.enums import Role, VerdictKind
from apps.diagnosis.wording import GROUP_TITLES, known_error

LINE_CHARACTERS = 300
TITLE_CHARACTERS = 100
#: Parts of a line that vary between jobs. Exit codes, signals and status codes are kept, because
#: they distinguish errors.
_VARIES = re.compile(
    r"(?P<time>\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?(?:[.,]\d+)?Z?|\b\d\d:\d\d:\d\d\b(?:[.,]\d+)?)"
    r"|(?P<id>\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b)"
    r"|(?P<hex>\b0x[0-9a-fA-F]+\b|\b[0-9a-f]{12,}\b)"
    r"|(?P<path>(?<![\w.])(?:/[\w.+=@-]{1,255}){2,}/?)"
    r"|(?P<n>(?<!\d)(?<!code )(?<!code=)(?<!signal )(?<!Errno )(?<!errno=)(?<!status "
    r")(?<!HTTP )\d+)"
)
_ERROR = re2.compile(
    rb"(?i)error|fatal|exception|fail|abort|killed|cannot|could not|denied|no such|not found",
    latin_options(),
)
_TAIL_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """The identity of a group of failures."""

    verdict: VerdictKind
    cause: str = ""
    service: str = ""
    message: str = ""
    frame: str = ""

    @property
    def digest(self) -> str:
        parts = (self.verdict.value, self.cause, self.service, self.message, self.frame)
        return blake2b("\0".join(parts).encode(), digest_size=16).hexdigest()


def symptom_of(cause: str, message: str, frame: str) -> str:
    """Return a digest of known error, masked line and frame, which is independent of the verdict.

    Return "" without known error and line.
    """
    if cause or message:
        return blake2b(f"{cause}\0{message}\0{frame}".encode(), digest_size=16).hexdigest()
    return ""


def mask(line: str) -> str:
    """Replace the parts that vary between jobs: times, IDs, addresses, paths, numbers."""
    return _VARIES.sub(lambda match: f"<{match.lastgroup}>", line[:2000]).strip()[:LINE_CHARACTERS]


def message_of(decided: EngineVerdict, line: str) -> str:
    """Return the part of a line that distinguishes failures of one cause.

    Return "" for a known cause without a stack frame.
    """
    hit = decided.cause
    if hit is not None and hit.pattern.role is Role.CAUSE and not hit.fields.get("frame"):
        return ""
    if hit is None and decided.verdict is not VerdictKind.UNKNOWN:
        return mask(decided.summary)
    return line


def line_of(decided: EngineVerdict, blocks: Sequence[Block]) -> str:
    """Return the masked line that shows the failure.

    This is the line that decided, else a novel line, else the last line that mentions an error. If
    no log may be read, it says why.
    """
    if decided.log_refused:
        return decided.log_refused
    if decided.cause is not None:
        return mask(decided.cause.text)
    if decided.novel_line:
        return mask(decided.novel_line)
    for block in blocks:
        last = deque(matching_lines(_ERROR, clean(block.data[-_TAIL_BYTES:])), maxlen=1)
        for _, line in last:
            return mask(line[:2000].decode(errors="replace"))
    return ""


def _title_of_known_error(cause: Hit, message: str) -> str:
    """Return the title of the known error, with what distinguishes its groups."""
    title = cause.pattern.title or known_error(cause).summary.rstrip(".")
    detail = cause.fields.get("frame") or message
    return f"{title}: {detail}" if detail else title


def title_of(decided: EngineVerdict, message: str) -> str:
    """Return the title of a group."""
    if decided.log_refused:
        text = decided.log_refused
    elif decided.verdict is VerdictKind.UNKNOWN:
        text = f"Unexplained: {message or 'no known error matched'}"
    elif decided.cause is not None:
        text = _title_of_known_error(decided.cause, message)
    else:
        text = GROUP_TITLES.get(decided.summary) or decided.summary.rstrip(".")
    if len(text) <= TITLE_CHARACTERS:
        return text
    return text[: TITLE_CHARACTERS - 1] + "…"
