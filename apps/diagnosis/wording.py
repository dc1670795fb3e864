"""All texts of a verdict: headline, next step, summary and reasons.

The engine decides; this module phrases the result. A summary is a sentence with a full stop, a
reason is a phrase without one.
"""

import signal
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from apps.clusters.schedulers.base import JobState
from apps.diagnosis.enums import Category, JobAdvice, Overlap, Refusal, Stream, VerdictKind

if TYPE_CHECKING:
    from apps.diagnosis.engine.base import Block, ExitCode, Hit, JobFacts, Outage
    from apps.diagnosis.engine.evidence.novelty import Baseline, NovelLine
    from apps.diagnosis.models import Verdict


class Wording(NamedTuple):
    """The texts of one piece of evidence: as a reason, and as the summary if it decides."""

    reason: str
    summary: str


NEXT_STEPS = {
    VerdictKind.SERVICE: "retry",
    VerdictKind.CODE: "debug",
    VerdictKind.RESOURCE: "request more",
    VerdictKind.USER: "do not retry",
    VerdictKind.UNKNOWN: "needs investigation",
}
#: Where a known error asks for more care than others of its verdict.
_STRICTER_STEPS: Mapping[tuple[str, str], str] = {
    (VerdictKind.SERVICE, JobAdvice.HOLD): "hold until it is fixed, then retry",
    (VerdictKind.SERVICE, JobAdvice.ESCALATE): "escalate to an expert, then retry",
    (VerdictKind.CODE, JobAdvice.HOLD): "hold, do not retry unchanged",
    (VerdictKind.CODE, JobAdvice.ESCALATE): "escalate to an expert",
}
FAILURES = {
    Category.SERVICE: "service failure",
    Category.SITE: "node or site failure",
    Category.EXPERIMENT_CODE: "error in the experiment's code",
    Category.CONFIGURATION: "job or environment misconfigured",
    Category.DATA: "data missing or corrupt",
    Category.RESOURCE: "resource limit exceeded",
    Category.USER: "cancelled by user",
    Category.UNKNOWN: "unknown failure",
}
OVER_MEMORY = "Killed for using more memory than requested"
LIMIT_EXCEEDED = "Resource limit exceeded: request more."
END_STATES = {
    JobState.TIMEOUT: Wording(
        "Killed when it reached its time limit",
        "Request a longer time limit, or find out why the job is slow.",
    ),
    JobState.DEADLINE: Wording(
        "Killed when it reached its deadline", "Set a later deadline, or submit a shorter job."
    ),
    JobState.OUT_OF_MEMORY: Wording(OVER_MEMORY, "Request more memory."),
    JobState.NODE_FAIL: Wording("The node failed", "The node failed while the job ran."),
    JobState.BOOT_FAIL: Wording("The node failed to boot", "The node did not boot for the job."),
    JobState.PREEMPTED: Wording(
        "Preempted by a higher-priority job", "The job made room for one of higher priority."
    ),
    JobState.REQUEUED: Wording("Requeued by the scheduler", "The scheduler starts the job again."),
}
#: A failure group is named after what happened, where the summary only says what to do.
GROUP_TITLES = {
    END_STATES[JobState.TIMEOUT].summary: "Killed at the time limit",
    END_STATES[JobState.DEADLINE].summary: "Killed at the deadline",
    END_STATES[JobState.OUT_OF_MEMORY].summary: OVER_MEMORY,
    LIMIT_EXCEEDED: "Resource limit exceeded",
}
NO_OUTPUT = Wording(
    "Slurm could not open the output file or enter the working directory (signal 53)",
    "Output or working directory does not exist.",
)
CANCELLED_BY_ROOT = Wording("Cancelled by root", "Cancelled by an administrator.")
COMPLETED = "Job completed; no known error matched in its log."
NOTHING_MATCHED = "No known error matched. Read the log."
NO_LOG = "No log of the job could be read, so its cause is unknown."
ONLY_CONSEQUENCES = "The log reports the failure but not its cause. Read the log."
NOTHING_IN_LOG = "No known error matched in the log"
BINARY = "Log is binary: it cannot be read as text"
LOG_PATH_UNKNOWN = "Log path unknown"
NEVER_STARTED = "Job never started, so it has no log"
LOG_GREW = "Log was still written to while it was read: re-analyse it later"
LOG_SHRANK = "Log was truncated while it was read"
LOG_REPLACED = "Log was removed or replaced while it was read: the previous log is shown"
LOG_POSTED = "Read from the end of the log that the job posted"
ANALYSIS_FAILED = "Log analysis failed: internal error of the portal"
#: What an admin does about logs that are refused, before the logs are re-analysed.
REFUSAL_FIXES = {
    Refusal.ROOTS: "Add the directory of these logs to LOG_ROOTS of all workers and web processes",
    Refusal.OWNER: "If their owner is right, add it to the cluster's option log_owners",
    Refusal.RIGHTS: "Let the job's user read it, or turn the cluster's option check_log_rights off",
    Refusal.SERVER: "Add the server to LOG_SERVERS",
    Refusal.FILE: "Let jobs write plain files in directories that only they may write to",
}


def log_refused(refusal: Refusal) -> str:
    """Return the name of a failure whose logs were all refused."""
    return f"Log refused: {refusal.label}"


def log_read_before(at: datetime | None) -> str:
    """Return that a log cannot be read now, and when the data used instead was read."""
    if at:
        when = f" on {at.astimezone(UTC):%-d %b %Y %H:%M} UTC"
    else:
        when = " earlier"
    return f"Log can no longer be read: the part stored{when} is used"


def step_of(kind: VerdictKind, advice: str) -> str:
    """Return what to do about a failure of this kind, for which there is this advice."""
    return _STRICTER_STEPS.get((kind, advice), NEXT_STEPS[kind])


def next_step(kind: VerdictKind, jobs: int, succeeded: int, advice: str) -> str:
    """Return what to do about `jobs` failures, `succeeded` of which completed later."""
    if jobs and jobs == succeeded:
        return "succeeded since, nothing to do"
    return step_of(kind, advice)


def headline(kind: VerdictKind, step: str = "") -> str:
    """Return verdict and next step in one line: `Resource limit exceeded: request more`."""
    return f"{kind.label}: {step or NEXT_STEPS[kind]}"


def headline_of(verdict: "Verdict", wait: str = "") -> str:
    """Return the headline of a verdict, with the result of a later attempt, else `wait`."""
    return headline(VerdictKind(verdict.verdict), next_step_of(verdict, wait))


def next_step_of(verdict: "Verdict", wait: str = "") -> str:
    """Return what to do after a verdict, or the result of a later attempt; else `wait`, if any."""
    if verdict.later_attempt:
        later = f"attempt {verdict.later_attempt}"
    else:
        later = f"retry {verdict.retried_as}"
    if verdict.later_state:
        step = f"{later} {JobState(verdict.later_state).text} since"
    else:
        step = wait or step_of(VerdictKind(verdict.verdict), verdict.advice)
    if verdict.later_state == JobState.COMPLETED:
        step = f"succeeded at {later}, nothing to do"
    return step


def summary_of(verdict: "Verdict", service_name: str) -> str:
    """Return the summary of a verdict with the name of its service on the status board."""
    summary: str = verdict.summary
    start = f"{verdict.service}: "
    if verdict.service and service_name and summary.startswith(start):
        return f"{service_name}: {summary.removeprefix(start)}"
    return summary


def end_state(facts: "JobFacts") -> str:
    """Return the end state, exit code and signal as one reason."""
    if facts.state:
        parts = [f"state {JobState(facts.state).text}"]
    else:
        parts = []
    parts += [f"exit code {facts.exit_code}"] if facts.exit_code is not None else []
    parts += [f"signal {_signal(facts.signal)}"] if facts.signal else []
    if not parts:
        return "End state unknown"
    return f"Scheduler reports {', '.join(parts)}"


def _signal(number: int) -> str:
    try:
        return f"{number} ({signal.Signals(number).name})"
    except ValueError:
        return str(number)


def exit_code(code: "ExitCode") -> Wording:
    """Phrase an exit code whose meaning is certain."""
    title = code.title[0].upper() + code.title[1:]
    return Wording(f"{code.kind.label} {code.number}: {code.title}", code.help or f"{title}.")


def cancelled_by_scheduler(reason: str) -> Wording:
    because = f" ({reason})" if reason else ""
    summary = "Cancelled by the scheduler: check the jobs it depends on."
    return Wording(f"Cancelled by the scheduler before it started{because}", summary)


def cancelled(by: str) -> Wording:
    return Wording(f"Cancelled by {by or 'an unknown user'}", "Cancelled by user.")


def crashed(number: int) -> Wording:
    return Wording(f"Crashed with signal {_signal(number)}", "The program crashed.")


def cpu_or_file_limit(number: int) -> Wording:
    return Wording(
        f"CPU time or file size limit exceeded, signal {_signal(number)}", LIMIT_EXCEEDED
    )


def killed(number: int, *, near: str) -> Wording:
    """Phrase a kill by a signal.

    `near` is the limit that the job was close to: `memory`, `time`, or "" if unknown.
    """
    if near:
        limit = f"close to its {near} limit"
    else:
        limit = "most likely for exceeding its memory limit"
    return Wording(f"Killed by {_signal(number)}{' ' if near else ', '}{limit}", LIMIT_EXCEEDED)


def known_error(hit: "Hit") -> Wording:
    """Phrase a known error in the log, with its place."""
    pattern = hit.pattern
    if hit.line is None:
        place = f"at byte {hit.offset:,}"
    else:
        place = f"at line {hit.line:,}"
    place += " of stderr" if hit.stream is Stream.STDERR else ""
    values = "".join(f", {name} {value}" for name, value in sorted(hit.fields.items()))
    reason = (
        f"Known error {pattern.id} {place}: {pattern.role}, {pattern.category}, "
        f"{pattern.service}{values}"
    )
    return Wording(reason, f"{pattern.service}: {FAILURES[pattern.category]} ({pattern.id}).")


def instructions(hit: "Hit") -> str:
    return f"What to do about {hit.pattern.id}: {hit.pattern.instructions}"


def catalogue_advice(hit: "Hit") -> str:
    return f"Catalogue advice for {hit.pattern.id}: {hit.pattern.advice}"


def outage(outage: "Outage") -> Wording:
    """Phrase an outage of a service that the job needed, or that the service's state is unknown."""
    had = _had_outage(outage)
    reason = f"State of {outage.title} while the job ran is unknown"
    if outage.overlap is Overlap.YES:
        reason = had
    if outage.text:
        reason += f": {outage.text}"
    return Wording(reason, f"{had}; no other cause found.")


def outage_confirmed(outage: "Outage", hit: "Hit") -> str:
    return f"{_had_outage(outage)}, confirmed by the log ({hit.pattern.id})."


def _had_outage(outage: "Outage") -> str:
    if outage.was_degraded:
        return f"{outage.title} was degraded while the job ran"
    return f"{outage.title} had an outage while the job ran"


def partly_read(block: "Block", before_bytes: int) -> str:
    """Phrase that a log was read in part: its end, and `before_bytes` from its beginning."""
    first = f"the first {before_bytes:,} and " if before_bytes else ""
    return (
        f"Only {first}the last {len(block.data):,} of {block.file_bytes:,} bytes of the log were "
        "read"
    )


def novel_line(line: "NovelLine", baseline: "Baseline") -> str:
    """Phrase a line that no successful job of the stage writes, with the counts."""
    times = f", {line.times} times here" if line.times > 1 else ""
    return (
        f"Novel line, in 0 of {baseline.logs} successful logs of {baseline.name}{times}: "
        f"{line.text}"
    )


def classifier_failed(name: str) -> str:
    return f"Log classifier {name} failed"


def too_slow(names: Sequence[str], *, stopped: bool) -> str:
    """Phrase that known errors were too slow for a log, or that its search was stopped."""
    left_out = (
        "Known errors too slow for this log, which were not searched in all of it: "
        f"{', '.join(names)}"
    )
    if not stopped:
        return left_out
    part = "Part of the log was not searched for known errors, which takes too long"
    return f"{left_out}. {part}" if names else part
