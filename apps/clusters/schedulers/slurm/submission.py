"""Where a submission asks its output to go: options of sbatch, its environment, and #SBATCH lines, in that order.

sbatch's command line comes from accounting, words joined by spaces with their quotes lost, so what follows a
value with a space in it cannot be told for certain and is left out.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

_WORD = re.compile(r"""(?:[^\s"'\\]|\\.|"(?:[^"\\]|\\.)*"|'[^']*')+""")
_PIECE = re.compile(r"""\\(.)|"((?:[^"\\]|\\.)*)"|'([^']*)'""")

# Short options without a value; every other one takes the next word, or the rest of its own.
_SHORT_FLAGS = "HhOQVvW"
_SHORT_OPTIONAL = "IkKs"
# Long options that never take the next word.
_LONG_FLAGS = {
    *("contiguous", "exclusive", "get-user-env", "help", "hold", "ignore-pbs", "nice", "no-kill", "no-requeue"),
    *("overcommit", "oversubscribe", "parsable", "propagate", "quiet", "reboot", "requeue", "share", "spread-job"),
    *("test-only", "usage", "use-min-nodes", "verbose", "version", "wait"),
}


class Output(NamedTuple):
    """The patterns asked for; empty where none is."""

    stdout: str = ""
    stderr: str = ""

    def over(self, other: "Output") -> "Output":
        """Return these patterns, completed by those of `other`."""
        return Output(self.stdout or other.stdout, self.stderr or other.stderr)


def requested_output(submit_line: str, environment: Mapping[str, str], script: bytes) -> Output:
    """Return the patterns of a submission; what sbatch heeds first wins."""
    from_environment = Output(environment.get("SBATCH_OUTPUT", ""), environment.get("SBATCH_ERROR", ""))
    return output_of_command(submit_line).over(from_environment).over(output_of_script(script))


def output_of_command(submit_line: str) -> Output:
    """Read the options of an sbatch command, up to its script or the next component of a heterogeneous job."""
    return _output_of(submit_line.split(" ")[1:])


def output_of_script(script: bytes) -> Output:
    """Read the `#SBATCH` lines before the first command; those after `hetjob` are of another component."""
    output = Output()
    for line in script.splitlines():
        if not line.startswith(b"#SBATCH"):
            if line.strip() and not line.startswith(b"#"):
                break
            continue
        words = list(_words(line.removeprefix(b"#SBATCH").decode(errors="replace")))
        if words in (["hetjob"], ["packjob"]):
            break
        output = _output_of(words).over(output)
    return output


def _output_of(words: Iterable[str]) -> Output:
    output = Output()
    remaining = iter(words)
    for word in remaining:
        if not word:
            continue
        if word == ":" or not word.startswith("-") or word.startswith("--wrap"):
            break
        name, value = _option(word, remaining)
        if name == "output":
            output = output._replace(stdout=value)
        elif name == "error":
            output = output._replace(stderr=value)
    return output


def _option(word: str, following: Iterator[str]) -> tuple[str, str]:
    """Return the name and value of the option that starts with `word`; its value may be the word after it."""
    if word.startswith("--"):
        name, equals, value = word[2:].partition("=")
        if not equals and name not in _LONG_FLAGS:
            value = next(following, "")
        for whole in ("output", "error"):
            if len(name) > 1 and whole.startswith(name):
                return whole, value
        return name, value
    rest = word[1:].lstrip(_SHORT_FLAGS)
    letter, value = rest[:1], rest[1:]
    if letter and letter not in _SHORT_OPTIONAL and not value:
        value = next(following, "")
    return {"o": "output", "e": "error"}.get(letter, letter), value


def _words(text: str) -> Iterator[str]:
    for match in _WORD.finditer(text):
        if match[0].startswith("#"):
            return
        yield _PIECE.sub(lambda piece: next(part for part in piece.groups() if part is not None), match[0])
