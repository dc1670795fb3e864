"""What a check of the doctor saw, and how to fix it."""

from dataclasses import dataclass
from enum import StrEnum


class FindingLevel(StrEnum):
    """How bad something is. Only a problem makes the doctor fail."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """The result of a check; `fix` is one sentence, and empty if all is well."""

    check: str
    level: FindingLevel
    seen: str
    fix: str = ""


def ok(check: str, seen: str) -> DoctorFinding:
    return DoctorFinding(check, FindingLevel.OK, seen)


def warning(check: str, seen: str, fix: str) -> DoctorFinding:
    return DoctorFinding(check, FindingLevel.WARNING, seen, fix)


def problem(check: str, seen: str, fix: str) -> DoctorFinding:
    return DoctorFinding(check, FindingLevel.PROBLEM, seen, fix)
