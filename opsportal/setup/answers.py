"""Take the answers from a file, or ask for them at the terminal."""

import difflib
import getpass
import os
import re
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opsportal.setup.errors import BadAnswer, BadAnswers, SetupError
from opsportal.setup.questions import FORBIDDEN, KEYS, SetupQuestion, find_fault, holds_secret


@dataclass
class SetupAnswers:
    """Answers by key. `file` is empty where they are asked for at the terminal."""

    values: dict[str, str] = field(default_factory=dict)
    file: str = ""
    lines: dict[str, int] = field(default_factory=dict)

    def reject(self, faults: Mapping[str, str]) -> None:
        """Raise `BadAnswers` if any answer has a fault."""
        problems = []
        for key, reason in faults.items():
            if reason:
                problems.append(BadAnswer(key, reason, self.lines.get(key, 0)))
        if problems:
            raise BadAnswers(problems, file=self.file)

    def complete(self, questions: Iterable[SetupQuestion]) -> None:
        """Answer these questions: by their defaults, or by the person at the terminal.

        Raises `BadAnswers` if the file lacks an answer or has a bad one.
        """
        faults = {}
        for question in questions:
            if not self.file and question.key not in self.values:
                self.values[question.key] = _ask(question, self.values)
            if question.key not in self.values:
                default = question.default(self.values)
                if default is None:
                    faults[question.key] = "is missing"
                self.values[question.key] = default or ""
            if question.key not in faults:
                faults[question.key] = find_fault(question.key, self.values[question.key])
        self.reject(faults)

    def ask_again(
        self, questions: Iterable[SetupQuestion], find: Callable[[], dict[str, str]]
    ) -> None:
        """Repeat these questions until `find` returns no faults; a file is not asked again.

        Raises `BadAnswers` for a file.
        """
        faults = find()
        if self.file:
            self.reject(faults)
        while faults:
            for key, reason in faults.items():
                print(f"{key}: {reason}")
            for question in questions:
                self.values[question.key] = _ask(question, self.values)
            faults = find()


def read_answers(path: Path) -> SetupAnswers:
    """Return the answers in a TOML file, with the line of each.

    Raises `BadAnswers` for an unknown key or a bad value, `SetupError` for a file that cannot be
    read, is no TOML, or shows its secrets to every user of this host.
    """
    try:
        text = path.read_text(encoding="utf-8")
        is_readable_by_all = path.stat().st_mode & 0o004
        values = tomllib.loads(text)
    except OSError as error:
        raise SetupError(f"{path}: {error.strerror}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SetupError(f"{path}: {error}. Nothing was changed.") from error

    answers = SetupAnswers(file=str(path))
    faults = {}
    for key, value in values.items():
        answers.lines[key] = _find_line(text, key)
        try:
            answers.values[key] = _to_text(key, value)
            faults[key] = _find_unknown(key) or find_fault(key, answers.values[key])
        except ValueError as error:
            faults[key] = _find_unknown(key) or str(error)
    answers.reject(faults)
    secrets = [key for key in values if key == "admin_password" or holds_secret(key)]
    if is_readable_by_all and secrets:
        raise SetupError(
            f"{path}: every user of this host can read it, and it holds {secrets[0]}: "
            f"chmod 600 {path}"
        )
    return answers


def _find_line(text: str, key: str) -> int:
    """Return the line of a key, counted from 1."""
    pattern = rf"""^\s*\[*\s*["']?{re.escape(key)}["']?\s*[].=]"""
    for number, line in enumerate(text.splitlines(), start=1):
        if re.match(pattern, line):
            return number
    return 0


def _to_text(key: str, value: Any) -> str:
    """Return a value of TOML as the text of a setting. Raises `ValueError`."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        separator = " " if key == "ARCHIVE_SINKS" else ","
        return separator.join(value)
    raise ValueError("must be a text, a number, true or false, or a list of texts")


def _find_unknown(key: str) -> str:
    if key in KEYS:
        return ""
    if key in FORBIDDEN:
        return "is never set on a site"
    near = difflib.get_close_matches(key, KEYS, n=1)
    return f"is no question; did you mean {near[0]}?" if near else "is no question"


def _ask(question: SetupQuestion, answers: Mapping[str, str]) -> str:
    """Ask a question until the answer is good. Raises `SetupError` at the end of the input."""
    _require_terminal()
    default = question.default(answers)
    prompt = f"{question.text} [{default}]: " if default else f"{question.text}: "
    while True:
        try:
            if question.is_secret:
                value = _ask_secret(prompt)
            else:
                value = input(prompt).strip() or default or ""
        except EOFError as error:
            raise SetupError("No answer. Nothing was changed.") from error
        if not value and default is None:
            fault = "is missing"
        else:
            fault = find_fault(question.key, value)
        if not fault:
            return value
        print(f"{question.key}: {fault}")


def _ask_secret(prompt: str) -> str:
    """Return what is typed twice the same, without showing it."""
    while True:
        value = getpass.getpass(prompt)
        if getpass.getpass("The same again: ") == value:
            return value
        print("The two differ.")


def _require_terminal() -> None:
    """Raise `SetupError` where nobody can be asked."""
    if not (os.isatty(0) and sys.stdout.isatty()):
        raise SetupError("There is no terminal to ask questions at: give --answers FILE")
