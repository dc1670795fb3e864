"""Parse the output options and script arguments of a submission.

Options come from the sbatch command, its environment and #SBATCH lines, in order of precedence.
Accounting joins the words of the command with spaces and drops quotes, so words after a value with
a space are skipped.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import NamedTuple

_WORD = re.compile(r"""(?:[^\s"'\\]|\\.|"(?:[^"\\]|\\.)*"|'[^']*')+""")
_PIECE = re.compile(r"""\\(.)|"((?:[^"\\]|\\.)*)"|'([^']*)'""")

# Only this much of a script is searched for options.
_MOST_BYTES = 200_000

# Short options without a value. Any other takes the next word or the rest of its own.
_SHORT_FLAGS = "HhOQVvW"
_SHORT_OPTIONAL = "IkKs"
# Long options that never take the next word.
_LONG_FLAGS = {
    "contiguous",
    "exclusive",
    "get-user-env",
    "help",
    "hold",
    "ignore-pbs",
    "nice",
    "no-kill",
    "no-requeue",
    "overcommit",
    "oversubscribe",
    "parsable",
    "propagate",
    "quiet",
    "reboot",
    "requeue",
    "share",
    "spread-job",
    "test-only",
    "usage",
    "use-min-nodes",
    "verbose",
    "version",
    "wait",
}


class OutputPatterns(NamedTuple):
    """The requested patterns; empty if not requested."""

    stdout: str = ""
    stderr: str = ""

    def over(self, other: "OutputPatterns") -> "OutputPatterns":
        """Return these patterns, with the patterns of `other` as defaults."""
        return OutputPatterns(self.stdout or other.stdout, self.stderr or other.stderr)


def requested_output(
    submit_line: str, environment: Mapping[str, str], script: bytes
) -> OutputPatterns:
    """Return the requested patterns, in sbatch's order of precedence."""
    from_environment = OutputPatterns(
        environment.get("SBATCH_OUTPUT", ""), environment.get("SBATCH_ERROR", "")
    )
    return output_of_command(submit_line).over(from_environment).over(output_of_script(script))


def output_of_command(submit_line: str) -> OutputPatterns:
    """Parse the options of an sbatch command.

    They end at its script or at the next component of a heterogeneous job.
    """
    return _output_of(submit_line.split(" ")[1:])


def arguments_of_submission(submit_line: str, *, name: str) -> str:
    """Return the arguments after the script in an sbatch command.

    Return "" for `--wrap`, `salloc` and `srun`.
    """
    program, *arguments = submit_line.split(" ")
    if PurePosixPath(program).name != "sbatch":
        return ""

    named = False
    while arguments:
        options, arguments = _cut_options(arguments)
        named |= any(option == "J" or "job-name".startswith(option) for option, _ in options)
        if not arguments or arguments[0] != ":":
            break
        arguments = arguments[1:]

    if not arguments or arguments[0].startswith("--wrap"):
        return ""
    return _after_script(arguments, "" if named else name)


def arguments_of_command(command: str, *, name: str) -> str:
    """Return the arguments after the script in the command that slurmctld keeps for a job."""
    return _after_script(command.split(" "), name)


def _after_script(arguments: list[str], name: str) -> str:
    """Return the arguments after the script, which is the argument with this name, or the first.

    A job submitted without a name has the name of its script.
    """
    script = 0
    if name:
        file_names = [argument.rpartition("/")[2] for argument in arguments]
        script = file_names.index(name) if name in file_names else 0
    return " ".join(arguments[script + 1 :])


def output_of_script(script: bytes) -> OutputPatterns:
    """Parse the `#SBATCH` lines before the first command.

    Lines after `hetjob` belong to another component.
    """
    output = OutputPatterns()
    for line in script[:_MOST_BYTES].splitlines():
        if not line.startswith(b"#SBATCH"):
            if line.strip() and not line.startswith(b"#"):
                break
            continue

        arguments = list(_words(line.removeprefix(b"#SBATCH").decode(errors="replace")))
        if arguments in (["hetjob"], ["packjob"]):
            break
        output = _output_of(arguments).over(output)
    return output


def _output_of(arguments: list[str]) -> OutputPatterns:
    # If an option is repeated, the last one counts.
    options = dict(_cut_options(arguments)[0])
    return OutputPatterns(options.get("output", ""), options.get("error", ""))


def _cut_options(arguments: list[str]) -> tuple[list[tuple[str, str]], list[str]]:
    """Split a command into leading options and the rest, from the script, `:` or `--wrap` on."""
    options = []
    index = 0
    while index < len(arguments):
        argument = arguments[index]
        if argument and (
            argument == ":" or not argument.startswith("-") or argument.startswith("--wrap")
        ):
            break
        index += 1
        if argument:
            following = arguments[index] if index < len(arguments) else ""
            name, value, taken = _option(argument, following)
            options.append((name, value))
            index += taken
    return options, arguments[index:]


def _option(argument: str, following: str) -> tuple[str, str, bool]:
    """Return the name and value of an option, and whether its value is the following argument."""
    if argument.startswith("--"):
        name, equals, value = argument[2:].partition("=")
        taken = not equals and name not in _LONG_FLAGS
        if taken:
            value = following
        for whole in ("output", "error"):
            if len(name) > 1 and whole.startswith(name):
                return whole, value, taken
        return name, value, taken

    without_flags = argument[1:].lstrip(_SHORT_FLAGS)
    letter = without_flags[:1]
    value = without_flags[1:]
    taken = bool(letter) and letter not in _SHORT_OPTIONAL and not value
    if taken:
        value = following
    return {"o": "output", "e": "error"}.get(letter, letter), value, taken


def _words(text: str) -> Iterator[str]:
    for match in _WORD.finditer(text):
        if match[0].startswith("#"):
            return
        yield _PIECE.sub(
            lambda piece: next(part for part in piece.groups() if part is not None), match[0]
        )
