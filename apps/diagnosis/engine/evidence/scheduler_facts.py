"""Scheduler facts that can decide a verdict: end states, signals, limits and exit codes."""

import signal
from dataclasses import dataclass

from apps.clusters.schedulers.base import JobState
from apps.diagnosis import wording
from apps.diagnosis.engine.base import JobFacts
from apps.diagnosis.engine.evidence.exit_codes import certain_meaning, known_codes, meanings_of
from apps.diagnosis.enums import Category, CodeKind, CodeScope, Confidence, ReasonKind
from apps.diagnosis.wording import Wording

TIME_LIMIT_STATES = frozenset({JobState.TIMEOUT, JobState.DEADLINE})
NEAR_LIMIT = 0.95
SLURM_NO_OUTPUT = 53
SLURM_OUT_OF_MEMORY = 125
CRASHES = frozenset(
    {
        signal.SIGILL,
        signal.SIGTRAP,
        signal.SIGABRT,
        signal.SIGBUS,
        signal.SIGFPE,
        signal.SIGSEGV,
        signal.SIGSYS,
    }
)
STATES = {
    JobState.TIMEOUT: Category.RESOURCE,
    JobState.DEADLINE: Category.RESOURCE,
    JobState.OUT_OF_MEMORY: Category.RESOURCE,
    JobState.NODE_FAIL: Category.SITE,
    JobState.BOOT_FAIL: Category.SITE,
    JobState.PREEMPTED: Category.SITE,
    JobState.REQUEUED: Category.SITE,
}


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact from the scheduler that can decide a verdict."""

    category: Category
    confidence: Confidence
    wording: Wording
    kind: ReasonKind = ReasonKind.SCHEDULER


def deciding_state(facts: JobFacts) -> Fact | None:
    """Return the fact of an end state that decides alone, whatever the log says; else None."""
    if facts.state is JobState.CANCELLED:
        return _cancelled(facts)
    if facts.state not in STATES:
        return None
    return Fact(STATES[facts.state], Confidence.HIGH, wording.END_STATES[facts.state])


def _cancelled(facts: JobFacts) -> Fact:
    """Return who cancelled the job: the scheduler, if no user did and the job never ran."""
    by_scheduler = facts.scheduler == "slurm" or facts.reason.startswith("Dependency")
    if by_scheduler and not facts.cancelled_by and facts.wall_seconds == 0:
        return Fact(
            Category.UNKNOWN, Confidence.MEDIUM, wording.cancelled_by_scheduler(facts.reason)
        )
    if facts.cancelled_by in {"0", "root"}:
        return Fact(Category.USER, Confidence.MEDIUM, wording.CANCELLED_BY_ROOT)
    if facts.cancelled_by:
        confidence = Confidence.HIGH
    else:
        confidence = Confidence.MEDIUM
    return Fact(Category.USER, confidence, wording.cancelled(facts.cancelled_by))


def killing_signal(facts: JobFacts) -> int:
    """Return the signal that killed the job, 0 if there is none.

    The scheduler reports it, or a shell's exit code above 128 encodes it.
    """
    if facts.signal:
        return facts.signal
    code = facts.exit_code or 0
    return code - 128 if 128 < code <= 128 + 31 else 0


def killed_by(facts: JobFacts) -> Fact | None:
    """Return what the signal that killed the job means; None if it has no known meaning."""
    number = killing_signal(facts)
    if number in CRASHES:
        return Fact(Category.EXPERIMENT_CODE, Confidence.MEDIUM, wording.crashed(number))
    if number == SLURM_OUT_OF_MEMORY:
        return Fact(
            Category.RESOURCE, Confidence.HIGH, Wording(wording.OVER_MEMORY, wording.LIMIT_EXCEEDED)
        )
    if number == SLURM_NO_OUTPUT and facts.scheduler == "slurm":
        return Fact(Category.CONFIGURATION, Confidence.MEDIUM, wording.NO_OUTPUT)
    if number in {signal.SIGXCPU, signal.SIGXFSZ}:
        return Fact(Category.RESOURCE, Confidence.MEDIUM, wording.cpu_or_file_limit(number))
    if number not in {signal.SIGKILL, signal.SIGTERM}:
        return None
    return _killed_from_outside(facts, number)


def _killed_from_outside(facts: JobFacts, number: int) -> Fact | None:
    """Return the meaning of SIGKILL or SIGTERM: mostly a limit.

    Confidence depends on how close the job was to its limits.
    """
    if _near(facts.max_memory_bytes, facts.requested_memory_bytes):
        return Fact(Category.RESOURCE, Confidence.MEDIUM, wording.killed(number, near="memory"))
    if _near(facts.wall_seconds, facts.time_limit_seconds):
        return Fact(Category.RESOURCE, Confidence.MEDIUM, wording.killed(number, near="time"))
    if number != signal.SIGKILL:
        return None
    return Fact(Category.RESOURCE, Confidence.LOW, wording.killed(number, near=""))


def _near(used: int | None, limit: int | None) -> bool:
    return bool(used and limit and used >= NEAR_LIMIT * limit)


def held(facts: JobFacts) -> Fact | None:
    """Return the meaning of a job's hold code, even if ambiguous; None without a hold code."""
    codes = (code for code in meanings_of(facts, known_codes(facts)) if code.kind is CodeKind.HOLD)
    code = next((code for code in codes if code.category is not Category.UNKNOWN), None)
    if code is None:
        return None
    confidence = Confidence.MEDIUM if code.certain else Confidence.LOW
    return Fact(code.category, confidence, wording.exit_code(code), ReasonKind.EXIT_CODE)


def known_exit_code(facts: JobFacts) -> Fact | None:
    """Return the meaning of the exit code if it is certain; a mere convention counts least."""
    code = certain_meaning(facts)
    if code is None:
        return None
    by_convention = code.scope is CodeScope.CONVENTION
    confidence = Confidence.LOW if by_convention else Confidence.MEDIUM
    return Fact(code.category, confidence, wording.exit_code(code), ReasonKind.EXIT_CODE)


def parse_state(text: str) -> tuple[JobState, str]:
    """Parse an end state in Slurm's spelling or in lower case.

    Return the state and who cancelled the job, "" if unknown. Accepts `CANCELLED by 1000` and
    states truncated by sacct (`OUT_OF_ME+`). Raises `ValueError`.
    """
    word, _, by = text.strip().partition(" by ")
    name = word.lower().replace(" ", "_")
    if name.endswith("+"):
        states = [state for state in JobState if state == name or state.startswith(name[:-1])]
    else:
        states = [state for state in JobState if state == name]
    if len(states) != 1:
        raise ValueError(
            f"Unknown state {text!r}. Known states: {', '.join(state.name for state in JobState)}."
        )
    return states[0], by.strip()
