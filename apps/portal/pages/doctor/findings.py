"""What a check of the doctor saw, and how to fix it."""

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How bad something is. Only a problem makes the doctor fail."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check; `fix` is one sentence, and empty if all is well."""

    check: str
    level: Level
    seen: str
    fix: str = ""


def ok(check: str, seen: str) -> Finding:
    return Finding(check, Level.OK, seen)


def warning(check: str, seen: str, fix: str) -> Finding:
    return Finding(check, Level.WARNING, seen, fix)


def problem(check: str, seen: str, fix: str) -> Finding:
    return Finding(check, Level.PROBLEM, seen, fix)
