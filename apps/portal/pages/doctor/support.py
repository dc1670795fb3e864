"""The versions of other programs that this version of the portal works with.

The same table stands in docs/production.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from apps.portal.pages.doctor.findings import DoctorFinding, ok, problem, warning
from opsportal.setup.database import OLDEST_VERSION


@dataclass(frozen=True, slots=True)
class Supported:
    """A program with its oldest supported version, and the newest one of its releases."""

    program: str
    oldest: tuple[int, ...]
    newest: tuple[int, ...]

    def __str__(self) -> str:
        return f"{_dotted(self.oldest)} to {_dotted(self.newest)}"


PYTHON = Supported("Python", (3, 11), (3, 14))
POSTGRESQL = Supported("PostgreSQL", (OLDEST_VERSION,), (18,))
REDIS = Supported("Redis", (6, 2), (8,))
VALKEY = Supported("Valkey", (7, 2), (9,))
SUPPORTED = (PYTHON, POSTGRESQL, REDIS, VALKEY)


def version_finding(supported: Supported, version: Sequence[int]) -> DoctorFinding:
    """Judge the version of a program, such as (3, 13, 1).

    An older one is a problem, a newer one a warning.
    """
    program = supported.program
    check = f"version of {program}"
    seen = f"{program} {_dotted(version)}"
    release = tuple(version)
    if release[: len(supported.oldest)] < supported.oldest:
        return problem(check, f"{seen} is too old", f"Install {program} {supported}.")
    if release[: len(supported.newest)] > supported.newest:
        return warning(
            check,
            f"{seen} is newer than the versions that the portal was made for",
            f"Use {program} {supported}, or upgrade the portal.",
        )
    return ok(check, seen)


def _dotted(version: Sequence[int]) -> str:
    return ".".join(str(part) for part in version)
