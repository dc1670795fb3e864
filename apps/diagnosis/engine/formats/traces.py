"""Read stack traces of many languages: where a trace ends, and its telling messages."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from apps.diagnosis.engine.formats.plain_lines import peel

#: Longer traces are cut.
TRACE_LINES = 400
_PYTHON = "Traceback (most recent call last)"
_CHAINED = ("During handling of the above", "The above exception was the direct cause")
_FRAME = re.compile(
    r'\s{0,200}File "(?P<file>[^"]{1,300})", line (?P<line>\d{1,9})(?:, in (?P<where>\S{1,100}))?'
)
_EXCEPTION = re.compile(r"(?P<type>[A-Za-z_][\w.]{0,160})(?:\((?P<code>-?\d{1,5})\))?(?::|$)")
_JAVA = re.compile(
    r'(?:Exception in thread "[^"]{1,100}" )?(?:Caused by: '
    r")?[a-zA-Z_$][\w$]{0,60}(?:\.[\w$]{1,80}){1,12}"
    r"(?:Exception|Error|Throwable)\b"
)
_HEADERS = re.compile(
    r"(?:fatal error|error|caused by|command error|exception message|error message|additional "
    r"info|message|what\(\)"
    r"|\S{0,40} ?(?:fatal )?error(?: message)?(?: is)?"
    r"|[\W_]{0,12}(?:fatal |internal )?error (?:in|from) [^:]{1,80})\s?:$"
    r"|from \S{1,40}\s{1,9}: error #\s{0,12}\d{1,6}$",
    re.IGNORECASE,
)
_JULIA = re.compile(
    r"\bERROR: (?:(?:LoadError|InitError|TaskFailedException): ){0,4}(?P<type>[A-Z]\w{0,80})\b"
)
_MATLAB = re.compile(
    r"\}?Error (?P<how>in|using) (?P<where>[\w./>]{1,100})(?: \(line (?P<line>\d{1,7})\))?$"
)
#: MATLAB encloses its error messages in these.
_MATLAB_MARKS = "{}\b"
_TASK_EXIT = re.compile(r"terminated with an error exit status \((?P<status>\d{1,3})\)")
_LIBRARIES = ("site-packages", "dist-packages", "/lib/python", "<frozen", "<string>", "/usr/lib")


class TraceMessage(NamedTuple):
    """One message of a trace.

    `start` is the index of its first line, `type` is the type of the exception, `frame` is where it
    was raised.
    """

    start: int
    text: str
    type: str = ""
    frame: str = ""


class Trace(NamedTuple):
    """A trace: the index after its last line, and its messages, root cause first."""

    end: int
    messages: tuple[TraceMessage, ...]


def trace_at(lines: Sequence[str], start: int) -> Trace | None:
    """Return the trace that begins at the line with this index; None if there is none."""
    if _PYTHON in lines[start]:
        return _python(lines, start)
    message = peel(lines[start]).message
    if _JAVA.match(message) or _JULIA.search(lines[start]):
        return _java(lines, start) if _JAVA.match(message) else _julia(lines, start)
    if message.startswith("terminate called"):
        return _terminate(lines, start)
    if "*** G4Exception :" in message:
        return _geant(lines, start)
    if _HEADERS.match(message) or message.startswith("At line ") and "of file" in message:
        return _header(lines, start)
    return _matlab(lines, start)


def _python(lines: Sequence[str], start: int) -> Trace:
    """Read a Python traceback: also chained, indented, or with a logger's prefix on each line."""
    messages: list[TraceMessage] = []
    prefix = lines[start].index(_PYTHON)
    has_prefix = lines[start][:prefix].strip() != ""
    indent = None
    if not has_prefix:
        indent = len(lines[start]) - len(lines[start].lstrip())

    frame = ""
    end = start + 1
    while end < min(len(lines), start + TRACE_LINES):
        text = lines[end]
        source_line = _FRAME.search(text)
        if source_line:
            if not frame or not any(part in source_line["file"] for part in _LIBRARIES):
                frame = f"{source_line['file'].rpartition('/')[2]}:{source_line['line']}"
            end += 1
            continue
        body = text if indent is not None else peel(text).message
        depth = len(body) - len(body.lstrip())
        if (
            indent is None
            and end + 1 < len(lines)
            and (_FRAME.search(lines[end - 1]) or not body.strip())
        ):
            end += 1  # a line of source code: its indent was removed with the prefix
            continue
        if (
            body.strip()
            and depth <= (indent or 0)
            and not body.lstrip().startswith(("[Previous line", "^", "~", "|"))
        ):
            kind = _EXCEPTION.match(body.lstrip())
            messages.append(TraceMessage(end, body.strip(), kind["type"] if kind else "", frame))
            following = _chained(lines, end)
            if following is None:
                end += 1
                break
            end = following + 1
            frame = ""
            continue
        end += 1
    return Trace(end, tuple(messages))


def _chained(lines: Sequence[str], start: int) -> int | None:
    """Return the index of the next traceback if it is chained to the message at `start`."""
    for index in range(start + 1, min(len(lines), start + 12)):
        if any(phrase in lines[index] for phrase in _CHAINED):
            for header in range(index + 1, min(len(lines), index + 6)):
                if _PYTHON in lines[header]:
                    return header
    return None


def _java(lines: Sequence[str], start: int) -> Trace | None:
    """Read a Java or Groovy stack trace: the deepest `Caused by` is the root cause."""
    messages = [TraceMessage(start, peel(lines[start]).message)]
    end = start + 1
    while end < min(len(lines), start + TRACE_LINES):
        text = lines[end].strip()
        if text.startswith("Caused by:"):
            messages.insert(0, TraceMessage(end, text))
        elif not text.startswith(("at ", "... ", "Suppressed:")):
            break
        end += 1
    if end > start + 1 or "Exception in thread" in lines[start]:
        return Trace(end, tuple(messages))
    return None


def _julia(lines: Sequence[str], start: int) -> Trace | None:
    """Read a Julia stack trace: a message of one or more lines, `Stacktrace:`, numbered frames."""
    header = next(
        (
            index
            for index in range(start + 1, min(len(lines), start + 12))
            if lines[index].strip() == "Stacktrace:"
        ),
        None,
    )
    if header is None:
        return None
    end = header + 1
    while end < min(len(lines), start + TRACE_LINES) and re.match(
        r"\s+(?:\[\d|@ |\.\.\. )", lines[end]
    ):
        end += 1
    raised = _JULIA.search(lines[start])
    return Trace(
        end, (TraceMessage(start, peel(lines[start]).message, raised["type"] if raised else ""),)
    )


def _matlab(lines: Sequence[str], start: int) -> Trace | None:
    """Read a MATLAB error: a message followed by `Error in`, or preceded by `Error using`."""
    # Most lines end here, without the regular expressions below.
    if not any("Error in " in line or "Error using " in line for line in lines[start : start + 3]):
        return None
    below = next(
        (index for index in range(start + 1, min(len(lines), start + 3)) if lines[index].strip()),
        None,
    )
    if below is None:
        return None
    using = _MATLAB.match(_unmarked(lines[start]))
    caller = _MATLAB.match(_unmarked(lines[below]))
    if using and using["how"] == "using":
        return Trace(
            below + 1, (TraceMessage(below, _unmarked(lines[below]), frame=_place(using)),)
        )
    if using or not caller or caller["how"] != "in" or not caller["line"]:
        return None
    return Trace(below + 1, (TraceMessage(start, _unmarked(lines[start]), frame=_place(caller)),))


def _unmarked(line: str) -> str:
    return line.strip().strip(_MATLAB_MARKS)


def _place(match: re.Match[str]) -> str:
    if match["line"]:
        return f"{match['where']}:{match['line']}"
    return match["where"]


def _terminate(lines: Sequence[str], start: int) -> Trace:
    """Read the message of an uncaught C++ exception."""
    for index in range(start, min(len(lines), start + 4)):
        _, marker, text = lines[index].partition("what():")
        if marker:
            return Trace(index + 1, (TraceMessage(index, text.strip() or lines[index].strip()),))
    return Trace(start + 1, (TraceMessage(start, peel(lines[start]).message),))


def _geant(lines: Sequence[str], start: int) -> Trace:
    """Read a Geant4 exception, which is often just a warning."""
    end = min(len(lines), start + 12) - 1
    for index in range(start + 1, min(len(lines), start + 60)):
        if "G4Exception-END" in lines[index] or lines[index].lstrip().startswith("***"):
            end = index
            break
    text = " ".join(line.strip() for line in lines[start : end + 1])[:1500]
    if "just a warning" in text:
        return Trace(end + 1, ())
    details = []
    for index in range(start + 2, min(end, start + 8)):
        if lines[index].strip():
            details.append(TraceMessage(index, lines[index].strip()))
    problems = []
    for message in details:
        if re.search(r"fail|error|abandon|abort|problem", message.text, re.IGNORECASE):
            problems.append(message)
    return Trace(end + 1, (TraceMessage(start, lines[start].strip()), *problems[:1]))


def _header(lines: Sequence[str], start: int) -> Trace:
    """Read a heading such as `Fatal error:`, whose message is the next line that is not empty.

    A workflow manager quotes the output of a failed command, which ends with the error: the message
    is then the last quoted line.
    """
    if lines[start].strip().lower() == "command error:":
        end = next(
            (
                index
                for index in range(start + 1, min(len(lines), start + 60))
                if _ends_quote(lines[index])
            ),
            start + 1,
        )
        quoted = [index for index in range(start + 1, end) if lines[index].strip()]
        return Trace(
            start + 1, tuple(TraceMessage(index, lines[index].strip()) for index in quoted[-1:])
        )
    for index in range(start + 1, min(len(lines), start + 4)):
        if text := lines[index].strip():
            return Trace(
                start + 1, (TraceMessage(index, _task_exit(lines, index) or peel(text).message),)
            )
    return Trace(start + 1, ())


def _task_exit(lines: Sequence[str], start: int) -> str:
    """Return the program of a failed Nextflow task and its exit status, "" if there is none.

    The program is taken from the command quoted below.
    """
    ended = _TASK_EXIT.search(lines[start])
    for index in range(start + 1, min(len(lines), start + 8)) if ended else ():
        if lines[index].strip() == "Command executed:":
            command = next(
                (line.split()[0] for line in lines[index + 1 : index + 6] if line.strip()), ""
            )
            return f"{command}: exit status {ended['status']}" if ended else ""
    return ""


def _ends_quote(line: str) -> bool:
    return not line.strip() or line.startswith(("Work dir", "Command ", "Tip:"))
