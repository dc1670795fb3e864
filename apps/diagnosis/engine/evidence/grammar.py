"""Find errors that no catalogue knows, by the form of lines.

These are stack traces, messages of the operating system, and lines that look like errors.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from itertools import accumulate

import re2

from apps.diagnosis.engine.base import Block, Findings, Hit, JobFacts, Pattern
from apps.diagnosis.engine.evidence.catalogue import compile_pattern, text_of
from apps.diagnosis.engine.evidence.matchers import (
    Matcher,
    Re2Matcher,
    latin_options,
    matcher_of_large_logs,
)
from apps.diagnosis.engine.evidence.messages import Meaning, meanings_of
from apps.diagnosis.engine.formats.chunks import Chunk, LineNumbers, matching_lines
from apps.diagnosis.engine.formats.plain_lines import LINE_CHARACTERS, PlainLine, peel
from apps.diagnosis.engine.formats.traces import TraceMessage, trace_at
from apps.diagnosis.enums import ADVICE_OF, VERDICT_OF, Category, Role

#: The part at the end of a log that is read line by line, and the maximum number of lines in it
#: that mention an error.
WINDOW_BYTES = 1024 * 1024
CANDIDATES = 400
_SLICE = 64 * 1024
QUIET_LEVELS = frozenset(
    {"TRACE", "DEBUG", "VERBOSE", "INFO", "INFORMATION", "NOTICE", "NOTE", "WARN", "WARNING"}
)
LOUD_LEVELS = frozenset({"ERROR", "ERR", "CRITICAL", "CRIT", "FATAL", "SEVERE", "ALERT", "EMERG"})
WEIGHT = {role: weight for weight, role in enumerate(Role)}
#: Words that make a line worth examining.
_CANDIDATE = (
    r"(?i)error|exception|fatal|fail|abort|panic|traceback|kill|segmentation|signal"
    r"|sig[a-z]{3,4}\b|terminat|denied"
    r"|refused|timed? ?out|time-?out|cannot|can't|unable|could ?n.t|could not|not found|no "
    r"such|invalid|unreachable"
    r"|stale|expired|quota|no space|space left|cancel|assert|core dumped|critical|severe|of "
    r"memory|exhaust"
    r"|not enough|insufficient|java heap|unresolved|undefined"
    r"|missing|halted|exceed|lost|corrupt|what\(\)|caused "
    r"by|illegal|forrtl|exit(?:ed)?\b|broken pipe|unexpected"
    r"|not connected|interrupt|does not exist|bus error|term_|malformed|requested "
    r"access|unknown|too many|wrong"
    r"|mismatch|condor_rm|was held|not allowed|must be|bad "
    r"|is not\b|bad[a-z]|: \*\*\*|deleted|time limit|limit reach|removed|unavailab|offline|no "
    r"more|licen[cs]"
    r"|evict|preempt|not submitted"
)
#: Lines whose form shows that they are errors, such as a program's last message.
_ERROR_LINE = (
    r"^(?:[\w./()\[\]<>:-]{1,120}[ :]+){0,4}?(?:\*{1,5} ?)?(?:[\w.]{0,60})"
    r"(?:Error|ERROR|error|Exception|FATAL|Fatal|fatal error|CRITICAL|SEVERE|E R R O "
    r"R)(?:\(\w{0,20}\))?\s?"
    r"(?:[:!>\]]|\*|-|\[|$| in\b| \w)"
    r"|(?i)^(?:\S{1,80}:\s)?(?:failed|failure|unable|could "
    r"not|cannot|can't|aborting|aborted|panic|assertion|invalid"
    r"|unknown|undefined|illegal|missing|unexpected|bad)\b"
    r"|(?i)\b(?:assertion\b.{0,200}\bfailed|panicked at|(?:has|have|had|was|is|are|did) "
    r"(?:failed|not \w+ed)"
    r"|failed (?:to|with|on|at|for)\b|undefined reference|not recognized|not allowed|must "
    r"be|no match for"
    r"|is not defined)|(?i)\b(?:internal|fatal|runtime|syntax|severe) "
    r"(?:error|exception)\b|(?i)\bfailed[.!]?$"
)
#: Launchers report signals, and commands that could not be run, at a low level, although these end
#: a process.
_SIGNAL = re.compile(
    r"(?i)(?:exit|return) ?(?:code|status)?:? ?(?:-\d|12[67]\b)|segfault|\bsignal:? "
    r"(?:4|6|7|8|9|11)\b"
)
#: A prefix without a message, or a ruler.
_EMPTY = re.compile(r"[\w.\-\[\]]{0,80}:?[\s\W]*$")
#: Columns of numbers and file names that mention errors, and retries.
_NUMBERS = re.compile(r"(?i)errors?\s?[:=]\s{0,20}[-+]?[\d.]|stderr|\.err\b|\berror\.log|retry")


class BlockEnd:
    """The end of a block as clean lines, starting at the first line that mentions an error.

    `error_lines` are the indexes of the lines that do.
    """

    def __init__(
        self, block: Block, candidate: re2._Regexp, matcher: Matcher, size: int = WINDOW_BYTES
    ) -> None:
        cut = max(0, len(block.data) - size)
        if cut:
            cut = block.data.find(b"\n", cut) + 1 or cut
        self._chunk = Chunk(block, LineNumbers(block), cut, len(block.data))
        candidates = _last_candidates(candidate, matcher, self._chunk.text)
        self._begin = candidates[0] if candidates else len(self._chunk.text)
        if candidates:
            self.lines = self._chunk.text[self._begin :].split(b"\n")
        else:
            self.lines = []
        self._starts = [0, *accumulate(len(line) + 1 for line in self.lines)]
        self.error_lines = []
        for start in candidates:
            self.error_lines.append(bisect_right(self._starts, start - self._begin) - 1)

    def place_of(self, index: int) -> tuple[int, int | None]:
        """Return the offset of a line in the file, and its number."""
        return self._chunk.place_of(self._begin + self._starts[index])


def _last_candidates(candidate: re2._Regexp, matcher: Matcher, text: bytes) -> list[int]:
    """Return the starts of the last lines that mention an error, in order."""
    starts: list[int] = []
    end = len(text)
    while end > 0 and len(starts) < CANDIDATES:
        begin = text.rfind(b"\n", 0, end - _SLICE) + 1 if end > _SLICE else 0
        for first in matcher.match(text, begin, end).values() if matcher.fast else (0,):
            starts = [
                begin + start for start, _ in matching_lines(candidate, text[begin:end], first)
            ] + starts
        end = begin
    return starts[-CANDIDATES:]


class OwnLevels:
    """The log levels that an experiment marks in its own way, and how to find its error lines."""

    def __init__(self, levels: Sequence[tuple[str, str]]) -> None:
        self._levels = [(level.upper(), compile_pattern(regex)) for level, regex in levels]
        errors = [f"(?:{regex})" for level, regex in levels if level == "error"]
        regex = "|".join([*errors, f"(?:{_CANDIDATE})"])
        self.candidate = compile_pattern(regex) if errors else None
        self.matcher = Re2Matcher([regex]) if errors else None

    def peel(self, text: str) -> PlainLine:
        """Strip the prefixes of a line. The experiment's own level takes precedence over others."""
        data = text.encode()
        for level, regex in self._levels:
            if match := regex.search(data):
                own = match.end() if match.start() == 0 else 0
                return peel(data[own:].decode(errors="replace"))._replace(level=level)
        return peel(text)


@lru_cache(maxsize=100)
def _own_levels(levels: tuple[tuple[str, str], ...]) -> OwnLevels:
    return OwnLevels(levels)


class Grammar:
    """The classifier of last resort: it reads the end of a log by its form."""

    name = "grammar"

    def __init__(self, *, fast: bool = True) -> None:
        self._candidate = re2.compile(_CANDIDATE.encode(), latin_options())
        self._set = Re2Matcher([_CANDIDATE])
        if fast:
            self._large = matcher_of_large_logs([_CANDIDATE], self._set)
        else:
            self._large = self._set
        self._error_line = re2.compile(_ERROR_LINE.encode(), latin_options())

    def classify(self, facts: JobFacts, block: Block) -> Findings:
        """Return the errors at the end of `block` in log order."""
        matcher = self._large if len(block.data) >= WINDOW_BYTES else self._set
        levels = _own_levels(facts.levels)
        window = BlockEnd(block, levels.candidate or self._candidate, levels.matcher or matcher)
        if not window.error_lines:
            return Findings()
        last = window.error_lines[-1] + 40
        text = []
        for line in window.lines[:last]:
            text.append(line[: 2 * LINE_CHARACTERS].decode("utf-8", "replace"))

        hits: list[Hit] = []
        last_of_trace = -1
        for index in window.error_lines:
            if index <= last_of_trace:
                continue
            trace = trace_at(text, index)
            if trace:
                last_of_trace = trace.end - 1
                messages = _key_messages(trace.messages)
            else:
                messages = [TraceMessage(index, text[index])]
            for message in messages:
                meaning = self._meaning(message, levels, in_trace=trace is not None)
                if meaning:
                    hits.append(_hit(meaning, window, message, block))
        return Findings(hits=tuple(_distinct(hits)))

    def _meaning(
        self, message: TraceMessage, levels: OwnLevels, *, in_trace: bool
    ) -> Meaning | None:
        """Return what a message means; None if it is not an error."""
        line = levels.peel(message.text)
        quiet = line.level in QUIET_LEVELS and not in_trace
        if quiet and not _SIGNAL.search(line.message):
            return None

        meanings = meanings_of(line.message)
        if meanings is None:
            return None
        if meanings:
            return min(
                meanings,
                key=lambda meaning: (WEIGHT[meaning.role], meaning.category is Category.UNKNOWN),
            )
        if in_trace:
            kind = message.type.rpartition(".")[2] or "ERROR"
            return Meaning(
                f"UNCAUGHT-{kind}"[:64], Category.EXPERIMENT_CODE, "program", Role.SYMPTOM
            )

        loud = line.level in LOUD_LEVELS and not quiet and not _EMPTY.match(line.message)
        is_error = loud or self._error_line.search(line.message.encode("latin-1", "replace"))
        if is_error and not _NUMBERS.search(line.message):
            return Meaning("ERROR-LINE", Category.EXPERIMENT_CODE, "program", Role.CONSEQUENCE)
        return None


def _key_messages(messages: Sequence[TraceMessage]) -> list[TraceMessage]:
    """Return the root cause and the last message of a trace."""
    if len(messages) < 2:
        return list(messages)
    return [messages[0], messages[-1]]


def _distinct(hits: Sequence[Hit]) -> Iterator[Hit]:
    """Yield the first hit of each line."""
    seen = set()
    for hit in hits:
        if hit.offset not in seen:
            seen.add(hit.offset)
            yield hit


def _hit(meaning: Meaning, window: BlockEnd, message: TraceMessage, block: Block) -> Hit:
    verdict = VERDICT_OF[meaning.category]
    pattern = Pattern(
        meaning.id,
        meaning.category,
        meaning.service,
        "",
        ADVICE_OF[verdict],
        meaning.role,
        "stdout",
        "",
    )
    text = text_of(window.lines[message.start][:1000])
    offset, number = window.place_of(message.start)
    fields = {"frame": message.frame} if message.frame else {}
    return Hit(pattern, number, offset, text, 0, fields, block.stream)


@cache
def built_in() -> Grammar:
    """Return the grammar, built once per process."""
    return Grammar()
