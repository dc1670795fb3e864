"""Verdict wording for facts from the scheduler: end states, signals, limits and exit codes."""

import signal
from dataclasses import dataclass

from apps.clusters.schedulers.base import JobState
from apps.diagnosis.engine.base import JobFacts, Reason
from apps.diagnosis.enums import Category, Confidence, ReasonKind

TIME_LIMIT_STATES = frozenset({JobState.TIMEOUT, JobState.DEADLINE})
NEAR_LIMIT = 0.95
OVER_MEMORY = "Killed for using more memory than requested"
SLURM_NO_OUTPUT = 53
SLURM_OUT_OF_MEMORY = 125
CRASHES = frozenset(
    {signal.SIGILL, signal.SIGTRAP, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGSEGV, signal.SIGSYS}
)
STATES = {
    JobState.TIMEOUT: (
        Category.RESOURCE,
        "Killed when it reached its time limit",
        "Request a longer time limit, or find out why the job is slow.",
    ),
    JobState.DEADLINE: (
        Category.RESOURCE,
        "Killed when it reached its deadline",
        "Set a later deadline, or submit a shorter job.",
    ),
    JobState.OUT_OF_MEMORY: (Category.RESOURCE, OVER_MEMORY, "Request more memory."),
    JobState.NODE_FAIL: (Category.SITE, "The node failed", "Retry: the node failed."),
    JobState.BOOT_FAIL: (Category.SITE, "The node failed to boot", "Retry: the node failed to boot."),
    JobState.PREEMPTED: (Category.SITE, "Preempted by a higher-priority job", "Retry: the job was preempted."),
    JobState.REQUEUED: (
        Category.SITE,
        "Requeued by the scheduler",
        "No action needed: the scheduler restarts the job.",
    ),
}
EXIT_CODES = {
    124: (Category.RESOURCE, "timeout(1) killed a command", "A time limit inside the job was exceeded."),
    126: (Category.CONFIGURATION, "command not executable", "Check the command that the job runs."),
    127: (
        Category.CONFIGURATION,
        "command not found",
        "Check the command that the job runs and its environment setup.",
    ),
}


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact from the scheduler that can decide a verdict."""

    category: Category
    confidence: Confidence
    text: str
    summary: str
    kind: ReasonKind = ReasonKind.SCHEDULER


def end_state(facts: JobFacts) -> Reason:
    """Return the end state, exit code and signal as one reason."""
    parts = [f"state {facts.state.replace('_', ' ')}"] if facts.state else []
    parts += [f"exit code {facts.exit_code}"] if facts.exit_code is not None else []
    parts += [f"signal {signal_name(facts.signal)}"] if facts.signal else []
    text = f"Scheduler reports {', '.join(parts)}" if parts else "End state unknown"
    return Reason(ReasonKind.SCHEDULER, text)


def signal_name(number: int) -> str:
    try:
        return f"{number} ({signal.Signals(number).name})"
    except ValueError:
        return str(number)


def deciding_state(facts: JobFacts) -> Fact | None:
    """Return the fact of an end state that decides alone, regardless of the log; else None."""
    if facts.state is JobState.CANCELLED:
        return _cancelled(facts)
    if facts.state not in STATES:
        return None
    category, text, summary = STATES[facts.state]
    return Fact(category, Confidence.HIGH, text, summary)


def _cancelled(facts: JobFacts) -> Fact:
    """Return who cancelled the job: the scheduler itself, if no user did and the job never ran."""
    by_scheduler = facts.scheduler == "slurm" or facts.reason.startswith("Dependency")
    if by_scheduler and not facts.cancelled_by and facts.wall_seconds == 0:
        because = f" ({facts.reason})" if facts.reason else ""
        return Fact(
            Category.UNKNOWN,
            Confidence.MEDIUM,
            f"Cancelled by the scheduler before it started{because}",
            "Cancelled by the scheduler: check the jobs it depends on.",
        )
    if facts.cancelled_by in {"0", "root"}:
        return Fact(Category.USER, Confidence.MEDIUM, "Cancelled by root", "Cancelled by an administrator.")
    by = f" by {facts.cancelled_by}" if facts.cancelled_by else " by an unknown user"
    confidence = Confidence.HIGH if facts.cancelled_by else Confidence.MEDIUM
    return Fact(Category.USER, confidence, f"Cancelled{by}", "Cancelled by user.")


def killing_signal(facts: JobFacts) -> int:
    """Return the signal that killed the job: from the scheduler, else from a shell exit code above 128; else 0."""
    if facts.signal:
        return facts.signal
    code = facts.exit_code or 0
    return code - 128 if 128 < code <= 128 + 31 else 0


def killed_by(facts: JobFacts) -> Fact | None:
    """Return what the signal that killed the job means; None if it has no known meaning."""
    number = killing_signal(facts)
    name = signal_name(number)
    fact = None
    if number in CRASHES:
        fact = Fact(Category.EXPERIMENT_CODE, Confidence.MEDIUM, f"Crashed with signal {name}", "The program crashed.")
    elif number == SLURM_OUT_OF_MEMORY:
        fact = _limit(OVER_MEMORY, Confidence.HIGH)
    elif number == SLURM_NO_OUTPUT and facts.scheduler == "slurm":
        text = "Slurm could not open the output file or enter the working directory (signal 53)"
        fact = Fact(Category.CONFIGURATION, Confidence.MEDIUM, text, "Output or working directory does not exist.")
    elif number in {signal.SIGXCPU, signal.SIGXFSZ}:
        fact = _limit(f"CPU time or file size limit exceeded, signal {name}", Confidence.MEDIUM)
    elif number in {signal.SIGKILL, signal.SIGTERM}:
        fact = _killed_from_outside(facts, number, name)
    return fact


def _killed_from_outside(facts: JobFacts, number: int, name: str) -> Fact | None:
    """SIGKILL and SIGTERM mostly mean a limit; confidence depends on how close the job was to one."""
    if _near(facts.max_memory_bytes, facts.requested_memory_bytes):
        return _limit(f"Killed by {name} close to its memory limit", Confidence.MEDIUM)
    if _near(facts.wall_seconds, facts.time_limit_seconds):
        return _limit(f"Killed by {name} close to its time limit", Confidence.MEDIUM)
    if number == signal.SIGKILL:
        return _limit(f"Killed by {name}, most likely for exceeding its memory limit", Confidence.LOW)
    return None


def _near(used: int | None, limit: int | None) -> bool:
    return bool(used and limit and used >= NEAR_LIMIT * limit)


def _limit(text: str, confidence: Confidence) -> Fact:
    return Fact(Category.RESOURCE, confidence, text, "Resource limit exceeded: request more.")


def known_exit_code(facts: JobFacts) -> Fact | None:
    """Return the meaning of the exit code by shell convention."""
    if facts.exit_code not in EXIT_CODES:
        return None
    category, text, summary = EXIT_CODES[facts.exit_code]
    return Fact(category, Confidence.LOW, f"Exit code {facts.exit_code}: {text}", summary, ReasonKind.EXIT_CODE)


def parse_state(text: str) -> tuple[JobState, str]:
    """Parse an end state in Slurm's spelling or in lower case; return it and who cancelled the job ("" if unknown).

    Accepts `CANCELLED by 1000` and states truncated by sacct (`OUT_OF_ME+`). Raises `ValueError`.
    """
    word, _, by = text.strip().partition(" by ")
    name = word.lower().replace(" ", "_")
    found = [state for state in JobState if state == name or (name.endswith("+") and state.startswith(name[:-1]))]
    if len(found) != 1:
        raise ValueError(f"Unknown state {text!r}. Known states: {', '.join(state.name for state in JobState)}.")
    return found[0], by.strip()
