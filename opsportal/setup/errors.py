"""What stops the setup; each message is for the person who runs it."""

from dataclasses import dataclass


class SetupError(Exception):
    """The setup cannot continue. The message says why and how to fix it."""


@dataclass(frozen=True)
class BadAnswer:
    """A problem with the answer `key`, in `line` of the file of answers.

    `line` counts from 1; it is 0 for an answer that is not from a file.
    """

    key: str
    reason: str
    line: int = 0


class BadAnswers(SetupError):
    """Some answers are wrong. Nothing was changed."""

    def __init__(self, problems: list[BadAnswer], *, file: str = "") -> None:
        self.problems = problems
        lines = []
        for problem in sorted(problems, key=lambda problem: problem.line):
            place = ""
            if file and problem.line:
                place = f"{file}, line {problem.line}: "
            elif file:
                place = f"{file}: "
            lines.append(f"{place}{problem.key}: {problem.reason.rstrip('.')}.")
        super().__init__("\n".join([*lines, "Nothing was changed."]))
