"""Causes of the end of a simulated job, with its end in accounting, log and correct verdict."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import yaml
from pydantic import TypeAdapter

from apps.clusters.schedulers.base import JobState


class CauseKind(StrEnum):
    """The kind of a planted cause."""

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
    """How jobs of a kind end in accounting, the correct verdict, and a template of the log."""

    state: JobState
    exit_code: int = 0
    signal: int = 0
    verdict: str = ""
    reason: str = "None"
    log: str = ""


_DATA = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())
ENDS = TypeAdapter(dict[CauseKind, End]).validate_python(_DATA["ends"])
#: Templates of the last lines by service and phase; `payload` stands for the experiment's program.
SERVICE_LOGS: dict[str, dict[str, str]] = _DATA["services"]


@dataclass(frozen=True, slots=True)
class SimulatedCause:
    """The cause of the end of an attempt: its kind, what is to blame, and the phase.

    `blame` is a service, a host or a release. `outage` has start and end in seconds since the
    epoch.
    """

    kind: CauseKind
    blame: str = ""
    phase: int = 0
    outage: tuple[int, int] | None = None

    @property
    def end(self) -> End:
        """The end as accounting shows it."""
        return ENDS[self.kind]


DONE = SimulatedCause(CauseKind.NONE)
