"""Why a simulated job ends as it does: each cause with its end in accounting and the verdict that is right for it."""

from dataclasses import dataclass
from enum import StrEnum

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
    """How a job of some kind ends: state, exit code and signal in accounting, and the verdict expected."""

    state: JobState
    exit_code: int = 0
    signal: int = 0
    verdict: str = ""
    reason: str = "None"


ENDS = {
    Kind.NONE: End(JobState.COMPLETED),
    Kind.OUTAGE: End(JobState.FAILED, 65, 0, "service", "NonZeroExitCode"),
    Kind.NODE_LOST: End(JobState.NODE_FAIL, 0, 0, "service", "NodeDown"),
    Kind.HOST: End(JobState.FAILED, 255, 0, "service", "NonZeroExitCode"),
    Kind.TRANSIENT: End(JobState.FAILED, 65, 0, "service", "NonZeroExitCode"),
    Kind.MEMORY: End(JobState.OUT_OF_MEMORY, 0, 125, "resource", "OutOfMemory"),
    Kind.TIME_LIMIT: End(JobState.TIMEOUT, 0, 0, "resource", "TimeLimit"),
    Kind.CRASH: End(JobState.FAILED, 139, 0, "code", "NonZeroExitCode"),
    Kind.EXCEPTION: End(JobState.FAILED, 1, 0, "code", "NonZeroExitCode"),
    Kind.CONFIGURATION: End(JobState.FAILED, 90, 0, "code", "NonZeroExitCode"),
    Kind.DATA: End(JobState.FAILED, 66, 0, "code", "NonZeroExitCode"),
    Kind.CANCELLED: End(JobState.CANCELLED, 0, 0, "user"),
    Kind.NEVER_STARTED: End(JobState.CANCELLED, 0, 0, "user"),
    Kind.UNEXPLAINED: End(JobState.FAILED, 3, 0, "unknown", "NonZeroExitCode"),
}


@dataclass(frozen=True, slots=True)
class Cause:
    """What ended an attempt: its kind, what is to blame (a service, a host, a release), and in which phase.

    `outage` is when the service was out, in seconds of the epoch.
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
