"""What a check of the doctor saw, and how to fix it."""

from dataclasses import dataclass
from enum import StrEnum


class FindingLevel(StrEnum):
    """How bad something is. Only a problem makes the doctor fail."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check; `fix` is one sentence, and empty if all is well."""

    check: str
    level: FindingLevel
    seen: str
    fix: str = ""


def ok(check: str, seen: str) -> Finding:
    return Finding(check, FindingLevel.OK, seen)


def warning(check: str, seen: str, fix: str) -> Finding:
    return Finding(check, FindingLevel.WARNING, seen, fix)


def problem(check: str, seen: str, fix: str) -> Finding:
    return Finding(check, FindingLevel.PROBLEM, seen, fix)
