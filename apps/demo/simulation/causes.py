"""Why a simulated job ends as it does: each cause with its end in accounting,
its log and the correct verdict.
"""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import yaml
from pydantic import TypeAdapter

from apps.clusters.schedulers.base import JobState


class Kind(StrEnum):
    """What was planted."""

    NONE = "none"
    OUTAGE = "outage"
    NODE_LOST = "node lost"
    HOST = "host"
    TRANSIENT = "transient"
    MEMORY = "memory"
    TIME_LIMIT = "time limit"
    CRASH = "crash"
    EXCEPTION = "exception"
    CONFIGURATION = "configuration"
    DATA = "data"
    CANCELLED = "cancelled"
    NEVER_STARTED = "never started"
    UNEXPLAINED = "unexplained"


@dataclass(frozen=True, slots=True)
class End:
    """How jobs of a kind end in accounting, the correct verdict,
    and the last lines of the log as a template.
    """

    state: JobState
    exit_code: int = 0
    signal: int = 0
    verdict: str = ""
    reason: str = "None"
    log: str = ""


_DATA = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())
ENDS = TypeAdapter(dict[Kind, End]).validate_python(_DATA["ends"])
#: Templates of the last lines by service and phase; `payload` stands for the experiment's own
#: program.
SERVICE_LOGS: dict[str, dict[str, str]] = _DATA["services"]


@dataclass(frozen=True, slots=True)
class Cause:
    """What ended an attempt: its kind, what is to blame (a service, a host, a release),
    and in which phase.

    `outage` is when the service was out, in seconds since the epoch.
    """

    kind: Kind
    blame: str = ""
    phase: int = 0
    outage: tuple[int, int] | None = None

    @property
    def end(self) -> End:
        """Return how accounting shows it."""
        return ENDS[self.kind]


DONE = Cause(Kind.NONE)
