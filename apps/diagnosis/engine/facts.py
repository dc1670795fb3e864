"""What the scheduler's own facts mean: end states, signals, limits and exit codes."""

import signal
from dataclasses import dataclass

from apps.clusters.schedulers.base import JobState
from apps.diagnosis.engine.base import JobFacts, Reason
from apps.diagnosis.enums import Category, Confidence, ReasonKind

LIMITS_OF_TIME = frozenset({JobState.TIMEOUT, JobState.DEADLINE})
NEAR_LIMIT = 0.95
OVER_MEMORY = "Killed for using more memory than it asked for"
SLURM_NO_OUTPUT = 53
SLURM_OUT_OF_MEMORY = 125
CRASHES = frozenset(
    {signal.SIGILL, signal.SIGTRAP, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGSEGV, signal.SIGSYS}
)
STATES = {
    JobState.TIMEOUT: (Category.RESOURCE, "Killed at its time limit", "Ask for more time, or find why it is slow."),
    JobState.DEADLINE: (Category.RESOURCE, "Killed at its deadline", "Ask for a later deadline or a shorter job."),
    JobState.OUT_OF_MEMORY: (
        Category.RESOURCE,
        "Killed for using more memory than it asked for",
        "Ask for more memory.",
    ),
    JobState.NODE_FAIL: (Category.SITE, "The node failed under it", "Retry: its node failed."),
    JobState.BOOT_FAIL: (Category.SITE, "The node did not boot", "Retry: its node did not boot."),
    JobState.PREEMPTED: (Category.SITE, "Preempted by a job of higher priority", "Retry: it was preempted."),
    JobState.REQUEUED: (Category.SITE, "Put back into the queue by the scheduler", "The scheduler starts it again."),
}
EXIT_CODES = {
    124: (Category.RESOURCE, "timeout(1) ended it", "A time limit inside of the job was reached."),
    126: (Category.CONFIGURATION, "a file was found but cannot be executed", "Look at the command it runs."),
    127: (Category.CONFIGURATION, "a command was not found", "Look at the command it runs and its set-up."),
}


@dataclass(frozen=True, slots=True)
class Fact:
    """Something the scheduler says that can decide a verdict."""

    category: Category
    confidence: Confidence
    text: str
    summary: str
    kind: ReasonKind = ReasonKind.SCHEDULER


def ended(facts: JobFacts) -> Reason:
    """Tell how the job ended, in one sentence."""
    parts = [f"state {facts.state.replace('_', ' ')}"] if facts.state else []
    parts += [f"exit code {facts.exit_code}"] if facts.exit_code is not None else []
    parts += [f"signal {signal_name(facts.signal)}"] if facts.signal else []
    text = f"The scheduler says: {', '.join(parts)}" if parts else "How it ended is not known"
    return Reason(ReasonKind.SCHEDULER, text)


def signal_name(number: int) -> str:
    try:
        return f"{number} ({signal.Signals(number).name})"
    except ValueError:
        return str(number)


def deciding_state(facts: JobFacts) -> Fact | None:
    """Return what the end state says where it decides alone, whatever the log says."""
    if facts.state is JobState.CANCELLED:
        return _cancelled(facts)
    if facts.state not in STATES:
        return None
    category, text, summary = STATES[facts.state]
    return Fact(category, Confidence.HIGH, text, summary)


def _cancelled(facts: JobFacts) -> Fact:
    """Tell who cancelled it. One that nobody cancelled and that never ran, the scheduler gave up."""
    given_up = facts.scheduler == "slurm" or facts.reason.startswith("Dependency")
    if given_up and not facts.cancelled_by and facts.wall_seconds == 0:
        because = f" ({facts.reason})" if facts.reason else ""
        return Fact(
            Category.UNKNOWN,
            Confidence.MEDIUM,
            f"Cancelled by the scheduler before it started{because}",
            "The scheduler gave it up: look at the job that it waited for.",
        )
    if facts.cancelled_by in {"0", "root"}:
        return Fact(
            Category.USER, Confidence.MEDIUM, "Cancelled by the administrator (root)", "An administrator cancelled it."
        )
    by = f" by {facts.cancelled_by}" if facts.cancelled_by else "; by whom is not known"
    confidence = Confidence.HIGH if facts.cancelled_by else Confidence.MEDIUM
    return Fact(Category.USER, confidence, f"Cancelled{by}", "A person cancelled it.")


def killing_signal(facts: JobFacts) -> int:
    """Return the signal that ended the job: the scheduler's, else the one in a shell's exit code over 128."""
    if facts.signal:
        return facts.signal
    code = facts.exit_code or 0
    return code - 128 if 128 < code <= 128 + 31 else 0


def killed_by(facts: JobFacts) -> Fact | None:
    """Return what the signal that ended the job says, where it says something."""
    number = killing_signal(facts)
    name = signal_name(number)
    fact = None
    if number in CRASHES:
        fact = Fact(Category.EXPERIMENT_CODE, Confidence.MEDIUM, f"Crashed with signal {name}", "The program crashed.")
    elif number == SLURM_OUT_OF_MEMORY:
        fact = _limit(OVER_MEMORY, Confidence.HIGH)
    elif number == SLURM_NO_OUTPUT and facts.scheduler == "slurm":
        text = "Slurm could not open its output file or enter its directory (signal 53)"
        fact = Fact(Category.CONFIGURATION, Confidence.MEDIUM, text, "Its output or working directory is not there.")
    elif number in {signal.SIGXCPU, signal.SIGXFSZ}:
        fact = _limit(f"Over a limit of CPU time or file size, signal {name}", Confidence.MEDIUM)
    elif number in {signal.SIGKILL, signal.SIGTERM}:
        fact = _killed_from_outside(facts, number, name)
    return fact


def _killed_from_outside(facts: JobFacts, number: int, name: str) -> Fact | None:
    """SIGKILL and SIGTERM mostly mean a limit; how near the job was to one says how sure that is."""
    if _near(facts.max_memory_bytes, facts.requested_memory_bytes):
        return _limit(f"Killed by {name} while using nearly all memory it asked for", Confidence.MEDIUM)
    if _near(facts.wall_seconds, facts.time_limit_seconds):
        return _limit(f"Killed by {name} at its time limit", Confidence.MEDIUM)
    if number == signal.SIGKILL:
        return _limit(f"Killed from outside by {name}: most often for memory", Confidence.LOW)
    return None


def _near(used: int | None, limit: int | None) -> bool:
    return bool(used and limit and used >= NEAR_LIMIT * limit)


def _limit(text: str, confidence: Confidence) -> Fact:
    return Fact(Category.RESOURCE, confidence, text, "A limit was reached: ask for more.")


def known_exit_code(facts: JobFacts) -> Fact | None:
    """Return what the exit code says by the shell's conventions."""
    if facts.exit_code not in EXIT_CODES:
        return None
    category, text, summary = EXIT_CODES[facts.exit_code]
    return Fact(category, Confidence.LOW, f"Exit code {facts.exit_code}: {text}", summary, ReasonKind.EXIT_CODE)


def parse_state(text: str) -> tuple[JobState, str]:
    """Read an end state as Slurm spells it, or in lower case; return it and who cancelled the job, where told.

    `CANCELLED by 1000` and a state that sacct cut short (`OUT_OF_ME+`) are understood. Raises `ValueError`.
    """
    word, _, by = text.strip().partition(" by ")
    name = word.lower().replace(" ", "_")
    found = [state for state in JobState if state == name or (name.endswith("+") and state.startswith(name[:-1]))]
    if len(found) != 1:
        raise ValueError(f"{text!r} is no end state; known are: {', '.join(state.name for state in JobState)}")
    return found[0], by.strip()
