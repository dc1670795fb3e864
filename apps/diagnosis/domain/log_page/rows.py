"""Rows of a log on a page: lines, and folds of repeated, hidden or uneventful lines."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from apps.core.domain.expressions.line_search import Span
from apps.diagnosis.engine.evidence.catalogue import text_of
from apps.diagnosis.engine.evidence.novelty import Templates
from apps.diagnosis.engine.formats.markers import Level
from apps.diagnosis.engine.formats.plain_lines import clean
from apps.diagnosis.enums import Role

#: A line is shown up to this length, followed by a link to the rest.
LINE_BYTES = 8 * 1024
#: Lines shown around an eventful line, a novel line and the selected lines, at both ends of a
#: phase, and at the end of the log.
CONTEXT = 3
NOVEL_CONTEXT = 1
SELECTED_CONTEXT = 10
PHASE_LINES = 2
LAST_LINES = 20
#: A line that occurs more often than this, ignoring digits, is repeated. Shorter folds are shown.
REPEATS = 4
SHORTEST_FOLD = 3
#: In a shorter window, only repeated and hidden lines are folded.
SHORT = 200
#: Number of eventful lines in one window that keep their context.
MOST_EVENTFUL = 300
_KEY_BYTES = 120
_DIGITS = b"0123456789"


@dataclass(frozen=True, slots=True)
class KnownErrorMark:
    """The known error that matched a line, its role, and the service that it blames."""

    role: Role
    pattern: str
    service: str = ""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a line; `is_match` if it matches the search."""

    text: str
    is_match: bool = False


@dataclass(frozen=True, slots=True)
class PageLine:
    """A line of a log. `more_at` is the offset of its rest if it is too long to show.

    `template` is the hash of its template in hexadecimal digits, of a selected line.
    """

    offset: int
    number: int | None
    pieces: tuple[Piece, ...]
    level: Level | None = None
    mark: KnownErrorMark | None = None
    is_selected: bool = False
    is_novel: bool = False
    more_at: int | None = None
    more_bytes: int = 0
    template: str = ""
    kind: str = field(default="line", init=False)


@dataclass(frozen=True, slots=True)
class Fold:
    """Lines that are not shown: the bytes [begin, end)."""

    begin: int
    end: int
    number: int | None
    lines: int
    text: str
    kind: str = field(default="fold", init=False)


class RawLine(NamedTuple):
    """A line as read: offset, bytes, clean text, and a key that repeated lines share."""

    offset: int
    raw: bytes
    plain: bytes
    number: int | None
    key: bytes

    @property
    def end(self) -> int:
        return self.offset + len(self.raw) + 1


def split_lines(data: bytes, offset: int, number: int | None) -> list[RawLine]:
    """Split a block into lines; the first has this offset and number."""
    raws = data.split(b"\n")
    plains = clean(data).split(b"\n")
    if raws[-1] == b"":
        raws.pop()
    lines = []
    for index, raw in enumerate(raws):
        key = plains[index][:_KEY_BYTES].translate(None, _DIGITS)
        lines.append(
            RawLine(offset, raw, plains[index], None if number is None else number + index, key)
        )
        offset += len(raw) + 1
    return lines


def shown_bytes(line: RawLine) -> bytes:
    """Return the shown part of a line: the clean text, or the raw start of a long line."""
    if len(line.raw) > LINE_BYTES:
        return line.raw[:LINE_BYTES]
    return line.plain.rstrip(b"\r")


def page_line(
    line: RawLine,
    *,
    spans: Sequence[Span] = (),
    level: Level | None = None,
    mark: KnownErrorMark | None = None,
    is_selected: bool = False,
    is_novel: bool = False,
) -> PageLine:
    """Return a line to show, with the search matches in `spans` marked.

    A line that is too long is cut.
    """
    is_cut = len(line.raw) > LINE_BYTES
    text = shown_bytes(line)
    pieces = []
    position = 0
    for start, end in spans:
        if start > position:
            pieces.append(Piece(text_of(text[position:start])))
        pieces.append(Piece(text_of(text[start:end]), is_match=True))
        position = end
    if position < len(text) or not pieces:
        pieces.append(Piece(text_of(text[position:])))

    template = ""
    if is_selected and (line_hash := Templates().hash_of(line.plain)):
        template = f"{line_hash:016x}"
    return PageLine(
        offset=line.offset,
        number=line.number,
        pieces=tuple(pieces),
        level=level,
        mark=mark,
        is_selected=is_selected,
        is_novel=is_novel,
        more_at=line.offset + LINE_BYTES if is_cut else None,
        more_bytes=len(line.raw) - LINE_BYTES if is_cut else 0,
        template=template,
    )


@dataclass(frozen=True, slots=True)
class LineHighlights:
    """What makes lines of a window worth showing, by offset of the line.

    `marks` are known errors, `matching_lines` match the search, and `selected` is the range of
    bytes that the query names, both ends included.
    """

    levels: Mapping[int, Level]
    marks: Mapping[int, KnownErrorMark]
    matching_lines: Collection[int]
    novel_lines: Collection[int]
    phase_starts: Collection[int]
    selected: tuple[int, int] | None
    log_end: int


def shown_rows(
    lines: Sequence[RawLine], highlights: LineHighlights, *, only: Level | None, debug: bool
) -> list[bool]:
    """Return for each line whether it is shown.

    With `only`, lines of this level or worse are shown; debug lines are shown if `debug` is set.
    """
    if only is not None:
        levels = {"error"} if only == "error" else {"error", "warning"}
        are_shown = []
        for line in lines:
            are_shown.append(
                highlights.levels.get(line.offset) in levels or _is_always_shown(line, highlights)
            )
        return are_shown
    shown = [len(lines) <= SHORT] * len(lines)
    counts = Counter(line.key for line in lines)
    at_end = bool(lines) and lines[-1].end >= highlights.log_end

    # Of repeated lines, all but the first and the last.
    seen: Counter[bytes] = Counter()
    is_repetition = []
    for line in lines:
        seen[line.key] += 1
        is_repetition.append(counts[line.key] > REPEATS and 1 < seen[line.key] < counts[line.key])

    _show_eventful(shown, lines, highlights, is_repetition)
    if at_end:
        _show(shown, len(lines) - LAST_LINES, len(lines))
    # The rows around the selected lines have no folds.
    selected = [index for index, line in enumerate(lines) if _is_selected(line, highlights)]
    kept = range(0)
    if selected:
        kept = range(selected[0] - SELECTED_CONTEXT, selected[-1] + SELECTED_CONTEXT + 1)
    for index, line in enumerate(lines):
        if index in kept:
            continue
        hidden = is_repetition[index] or (
            highlights.levels.get(line.offset) == "debug" and not debug
        )
        if hidden and not _is_always_shown(line, highlights):
            shown[index] = False
    if at_end:
        _show(shown, len(lines) - SHORTEST_FOLD, len(lines))
    return _without_short_folds(shown, lines, highlights, debug=debug)


def _show_eventful(
    shown: list[bool],
    lines: Sequence[RawLine],
    highlights: LineHighlights,
    is_repetition: Sequence[bool],
) -> None:
    """Show eventful lines and both ends of phases, with the lines around them."""
    eventful = 0
    for index, line in enumerate(lines):
        context = _context_lines(line, highlights, is_repetition=is_repetition[index])
        eventful += bool(context)
        if context and (eventful <= MOST_EVENTFUL or context == SELECTED_CONTEXT):
            _show(shown, index - context, index + context + 1)
        if line.offset in highlights.phase_starts:
            _show(shown, index - PHASE_LINES, index + PHASE_LINES + 1)


def _is_always_shown(line: RawLine, highlights: LineHighlights) -> bool:
    """Return whether a line is shown at any level: a known error, a search match, or selected."""
    return (
        line.offset in highlights.marks
        or line.offset in highlights.matching_lines
        or _is_selected(line, highlights)
    )


def _is_selected(line: RawLine, highlights: LineHighlights) -> bool:
    return (
        highlights.selected is not None
        and line.offset <= highlights.selected[1]
        and line.end > highlights.selected[0]
    )


def _context_lines(line: RawLine, highlights: LineHighlights, *, is_repetition: bool) -> int:
    """Return how many lines are shown on each side of an eventful line; 0 if it is not eventful."""
    if _is_selected(line, highlights):
        return SELECTED_CONTEXT
    if line.offset in highlights.marks or line.offset in highlights.matching_lines:
        return CONTEXT
    if line.offset in highlights.novel_lines and not is_repetition:
        return NOVEL_CONTEXT
    if highlights.levels.get(line.offset) in {"error", "warning"} and not is_repetition:
        return CONTEXT
    return 0


def _show(shown: list[bool], start: int, end: int) -> None:
    for index in range(max(0, start), min(len(shown), end)):
        shown[index] = True


def _without_short_folds(
    shown: Sequence[bool], lines: Sequence[RawLine], highlights: LineHighlights, *, debug: bool
) -> list[bool]:
    """Show the lines of folds that would hide very few lines, except debug lines."""
    rows = list(shown)
    start = 0
    for index in range(len(rows) + 1):
        if index < len(rows) and not rows[index]:
            continue
        folded = range(start, index)
        if 0 < len(folded) < SHORTEST_FOLD:
            for folded_row in folded:
                rows[folded_row] = (
                    debug or highlights.levels.get(lines[folded_row].offset) != "debug"
                )
        start = index + 1
    return rows


def fold_lines(lines: Sequence[RawLine], highlights: LineHighlights) -> Fold:
    """Return the fold of these lines, with a summary of its contents."""
    levels = Counter(highlights.levels.get(line.offset) for line in lines)
    keys = Counter(line.key for line in lines)
    key, most = keys.most_common(1)[0]
    parts = []
    first_words = " ".join(text_of(key).split()[:3])[:40]
    if most >= REPEATS and first_words:
        parts.append(f"{most:,} × “{first_words}”")
    parts += [f"{levels[level]:,} {word}" for level, word in _LEVEL_WORDS.items() if levels[level]]
    count = len(lines)
    summary = f"{count:,} {'line' if count == 1 else 'lines'}"
    if parts:
        summary += f": {', '.join(parts)}"
    return Fold(lines[0].offset, lines[-1].end, lines[0].number, count, summary)


_LEVEL_WORDS: dict[Level, str] = {"error": "errors", "warning": "warnings", "debug": "debug"}


def list_rows(
    lines: Sequence[RawLine],
    highlights: LineHighlights,
    *,
    spans: Mapping[int, Sequence[Span]],
    only: Level | None = None,
    debug: bool = False,
    fold: bool = True,
) -> list[PageLine | Fold]:
    """Return the rows of a window: lines, and folds of lines that are not shown."""
    if fold:
        shown = shown_rows(lines, highlights, only=only, debug=debug)
    else:
        shown = [True] * len(lines)
    rows: list[PageLine | Fold] = []
    hidden: list[RawLine] = []
    for line, is_shown in zip(lines, shown, strict=True):
        if hidden and (is_shown or line.offset in highlights.phase_starts):
            rows.append(fold_lines(hidden, highlights))
            hidden = []
        if not is_shown:
            hidden.append(line)
            continue
        rows.append(
            page_line(
                line,
                spans=spans.get(line.offset, ()),
                level=highlights.levels.get(line.offset),
                mark=highlights.marks.get(line.offset),
                is_selected=_is_selected(line, highlights),
                is_novel=line.offset in highlights.novel_lines,
            )
        )
    return [*rows, fold_lines(hidden, highlights)] if hidden else rows
