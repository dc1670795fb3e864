"""What can be seen of a failed attempt: end state, verdict of the portal, exit code of CMS."""

from dataclasses import dataclass
from random import Random

from apps.clusters.schedulers.base import JobState
from apps.diagnosis.enums import Category, VerdictKind
from benchmarks.recovery import world as truth
from benchmarks.recovery.world import Attempt, Cause, HostFault

#: Verdicts on logs that nobody had seen are right this often.
RIGHT_SHARE = 0.96


@dataclass(frozen=True, slots=True)
class _Named:
    """A cluster or a site, with the limits of a cluster."""

    name: str
    max_memory_bytes: int = truth.MOST_MEMORY
    max_wall_seconds: int = truth.MOST_SECONDS


@dataclass(frozen=True, slots=True)
class SeenJob:
    """Stands in for a stored job: the fields that recovery rules read."""

    state: JobState
    exit_code: int
    host: str
    requested_memory_bytes: int
    time_limit_seconds: int
    core_seconds: int
    site: _Named
    cluster: _Named
    signal: int = 0
    stage: str = "simulation"


@dataclass(frozen=True, slots=True)
class SeenVerdict:
    """Stands in for a stored verdict."""

    job: SeenJob
    verdict: VerdictKind
    category: Category
    cause: str = ""
    service: str = ""
    experiment_id: int = 0


@dataclass(frozen=True, slots=True)
class _Look:
    verdict: VerdictKind
    category: Category
    known_error: str
    state: JobState = JobState.FAILED


_V = VerdictKind
_C = Category
_LOOKS = {
    Cause.INPUT_OUTAGE: _Look(_V.SERVICE, _C.SERVICE, "CONN-TIMEOUT"),
    Cause.OUTPUT_OUTAGE: _Look(_V.SERVICE, _C.SERVICE, "GFAL-110"),
    Cause.MISSING_INPUT: _Look(_V.CODE, _C.DATA, "XRD-3011-NOENT"),
    Cause.CORRUPT_INPUT: _Look(_V.CODE, _C.DATA, "ROOT-BADREAD"),
    Cause.CORRUPT_OUTPUT: _Look(_V.CODE, _C.DATA, "CHECKSUM"),
    Cause.MEMORY: _Look(_V.RESOURCE, _C.RESOURCE, "SLURM-OOM", JobState.OUT_OF_MEMORY),
    Cause.SLOW_INPUT: _Look(_V.RESOURCE, _C.RESOURCE, "SLURM-TIMELIMIT", JobState.TIMEOUT),
    Cause.BAD_RELEASE: _Look(_V.CODE, _C.CONFIGURATION, "PY-NOMODULE"),
    Cause.CRASH: _Look(_V.CODE, _C.EXPERIMENT_CODE, "SEGV-SHELL"),
}
_LOOKS_OF_HOST = {
    HostFault.NO_CVMFS: _Look(_V.SERVICE, _C.SITE, "CVMFS-NOTCONN"),
    HostFault.FULL_DISK: _Look(_V.RESOURCE, _C.RESOURCE, "NOSPACE"),
    HostFault.CRASHES: _Look(_V.SERVICE, _C.SITE, "SLURM-NODEFAIL", JobState.NODE_FAIL),
}
#: What a wrong verdict takes a failure for.
_MISTAKES = (
    _Look(_V.SERVICE, _C.SERVICE, "CONN-RESET"),
    _Look(_V.CODE, _C.EXPERIMENT_CODE, "PY-TRACEBACK"),
    _Look(_V.RESOURCE, _C.RESOURCE, "BADALLOC"),
    _Look(_V.UNKNOWN, _C.UNKNOWN, ""),
)


class Observer:
    """Sees failed attempts as the portal does.

    The end state is a fact of the scheduler. A wrong verdict is any of the other kinds, and the
    same in each attempt of a job that fails in the same way: its log says the same.
    """

    def __init__(self, world: truth.World) -> None:
        self.world = world
        self.sites = [_Named(f"site{number}") for number in range(truth.SITES)]
        self.cluster = _Named("cluster")

    def verdict_on(self, attempt: Attempt) -> SeenVerdict:
        """Return the verdict on a failed attempt."""
        if attempt.fault is not None:
            look = _LOOKS_OF_HOST[attempt.fault]
        else:
            look = _LOOKS[attempt.cause]
        job = SeenJob(
            state=look.state,
            exit_code=0 if look.state != JobState.FAILED else 1,
            host=attempt.host,
            requested_memory_bytes=attempt.asked.memory_bytes,
            time_limit_seconds=attempt.asked.seconds,
            core_seconds=attempt.core_seconds,
            site=self.sites[self.world.site[attempt.job]],
            cluster=self.cluster,
        )
        service = attempt.service
        chance = Random(f"{self.world.seed} {attempt.job} {attempt.cause}")
        if chance.random() >= RIGHT_SHARE:
            others = [mistake for mistake in _MISTAKES if mistake.verdict != look.verdict]
            look = chance.choice(others)
            service = ""
        return SeenVerdict(
            job=job,
            verdict=look.verdict,
            category=look.category,
            cause=look.known_error,
            service=service,
            experiment_id=self.world.experiment[attempt.job],
        )


#: Exit codes of CMS. Problems of code have several, in turn.
_CMS_CODES = {
    Cause.INPUT_OUTAGE: (8020,),
    Cause.MISSING_INPUT: (8020,),
    Cause.CORRUPT_INPUT: (8021,),
    Cause.OUTPUT_OUTAGE: (60307,),
    Cause.CORRUPT_OUTPUT: (60307,),
    Cause.MEMORY: (50115,),
    Cause.SLOW_INPUT: (50664,),
    Cause.BAD_RELEASE: (8001, 139, 7002),
    Cause.CRASH: (139, 134, 8001),
}
_CMS_CODE_OF_HOST = {
    HostFault.NO_CVMFS: 50513,
    HostFault.FULL_DISK: 1,
    HostFault.CRASHES: 50115,
}


def cms_exit_code(attempt: Attempt) -> int:
    """Return the exit code that the same failure has in a job of CMS."""
    if attempt.fault is not None:
        return _CMS_CODE_OF_HOST[attempt.fault]
    codes = _CMS_CODES[attempt.cause]
    return codes[attempt.job % len(codes)]
