"""Keep secrets that a job printed out of what is stored of its log: the same bytes, with stars in their place."""

import re2

from apps.core.domain.masking import SECRET_HINT, SECRET_VALUES
from apps.diagnosis.engine.chunks import matching_lines
from apps.diagnosis.engine.matchers import latin_options

#: Small, as each search copies what it looks at.
_CHUNK = 4 * 1024
#: An assignment as in a dump of the environment or a command line: `X_TOKEN=…`, `--password=…`.
_NAMED = re2.compile(
    rb"(?i)(?:password|passwd|passphrase|secret|token|api_?key|private_?key|credential)[A-Za-z0-9_]{0,40}="
    rb"[\"']?([^\s\"',;&]{8,})",
    latin_options(),
)
#: Cheap: without it a log has no secret.
_HINT = re2.compile(
    SECRET_HINT.pattern + rb"|(?i:pass|secret|token|key|credential)[A-Za-z0-9_]{0,40}=",
    latin_options(),
)
#: Of a line with more of them the rest is starred.
_MOST_OF_A_LINE = 50


def starred(data: bytes) -> bytes:
    """Return a log with its secrets starred: as long as before, so that offsets stay, and line by line."""
    if not _HINT.search(data):
        return data
    parts, position = [], 0
    while position < len(data):
        end = data.find(b"\n", min(position + _CHUNK, len(data)) - 1) + 1 or len(data)
        parts.append(_chunk(data[position:end]))
        position = end
    return b"".join(parts)


def _chunk(chunk: bytes) -> bytes:
    for pattern in (SECRET_VALUES, _NAMED):
        starry = bytearray(chunk)
        for start, line in matching_lines(pattern, chunk):
            starry[start : start + len(line)] = _line(pattern, line)
        chunk = bytes(starry)
    return chunk


def _line(pattern: "re2._Regexp", line: bytes) -> bytes:
    """Star what a pattern finds in a line: its group, if it has one, else all of the match."""
    position = 0
    for _ in range(_MOST_OF_A_LINE):
        match = pattern.search(line, position)
        if match is None:
            return line
        begin, end = match.span(1) if pattern is _NAMED else match.span()
        line = line[:begin] + b"*" * (end - begin) + line[end:]
        position = end
    return line[:position] + b"*" * (len(line) - position)
