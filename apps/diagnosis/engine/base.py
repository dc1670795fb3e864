"""Data types of the engine, and the protocol of a log classifier (a plugin).

Third parties register a class with this protocol under the entry point group
`opsportal.log_classifiers`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from apps.clusters.schedulers.base import JobState
from apps.diagnosis.enums import (
    Category,
    CodeKind,
    CodeScope,
    Confidence,
    JobAdvice,
    Overlap,
    ReasonKind,
    Role,
    Stream,
    VerdictKind,
)


@dataclass(frozen=True, slots=True)
class ExitCode:
    """The meaning of a number that jobs end with.

    `name` is the experiment, scheduler or program, depending on `scope`. A `certain` meaning is
    evidence: no other program of the job uses the number for something else.
    """

    kind: CodeKind
    scope: CodeScope
    name: str
    number: int
    title: str
    help: str = ""
    category: Category = Category.UNKNOWN
    certain: bool = False
    source: str = ""

    @property
    def key(self) -> tuple[str, str, str, int]:
        return self.kind, self.scope, self.name, self.number


@dataclass(frozen=True, slots=True)
class JobFacts:
    """The scheduler's facts about one attempt of a job. None and "" mean unknown.

    `exit_codes` are the meanings to choose from; None means the shipped ones. `levels` are the
    experiment's own log levels: pairs of level (`error`, `warning`, `debug`) and expression; the
    first expression that matches a line sets its level.
    """

    scheduler: str = ""
    state: JobState | None = None
    exit_code: int | None = None
    signal: int | None = None
    cancelled_by: str = ""
    reason: str = ""
    host: str = ""
    experiment: str = ""
    wall_seconds: int | None = None
    time_limit_seconds: int | None = None
    max_memory_bytes: int | None = None
    requested_memory_bytes: int | None = None
    exit_codes: tuple[ExitCode, ...] | None = None
    levels: tuple[tuple[str, str], ...] = ()

    @property
    def has_failed(self) -> bool:
        """Whether the scheduler reports a failure."""
        if self.exit_code or self.signal:
            return True
        return self.state not in {None, JobState.COMPLETED}

    @property
    def has_succeeded(self) -> bool:
        """Whether the scheduler reports a success; of an unknown end it reports neither."""
        return self.state is JobState.COMPLETED and not self.has_failed


@dataclass(frozen=True, slots=True)
class Block:
    """A block of whole lines of a log: their bytes and their position in the file.

    The log is [begin, file_bytes) of the file. `first_line` is the number of the first line,
    counted from 1, or None if the file is too large to count.
    """

    data: bytes
    offset: int
    file_bytes: int
    first_line: int | None
    stream: Stream = Stream.STDOUT
    begin: int = 0

    @property
    def is_whole(self) -> bool:
        return self.offset <= self.begin and len(self.data) >= self.file_bytes - self.begin


@dataclass(frozen=True, slots=True)
class Pattern:
    """A known error: one row of the catalogue.

    A passive pattern marks lines but decides nothing. A pattern with an `experiment` applies only
    to jobs of that experiment.
    """

    id: str
    category: Category
    service: str
    regex: str
    advice: JobAdvice
    role: Role
    where: str
    example: str
    title: str = ""
    instructions: str = ""
    passive: bool = False
    experiment: str = ""


@dataclass(frozen=True, slots=True)
class Hit:
    """A known error found in a log: its line and position. `length` is the length of the match."""

    pattern: Pattern
    line: int | None
    offset: int
    text: str
    length: int = 0
    fields: Mapping[str, str] = field(default_factory=dict)
    stream: Stream = Stream.STDOUT


@dataclass(frozen=True, slots=True)
class Outage:
    """Whether a service that the job needs had an outage while it ran; `text` describes when.

    `name` is the name of the service on pages. A service that was degraded was not down.
    """

    service: str
    overlap: Overlap
    text: str = ""
    name: str = ""
    was_degraded: bool = False

    @property
    def title(self) -> str:
        return self.name or self.service


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason of a verdict, as a short sentence.

    `target` is the place that it links to: `stdout:OFFSET` or `stderr:OFFSET` in the logs,
    `service:SLUG`, or "".
    """

    kind: ReasonKind
    text: str
    target: str = ""


@dataclass(frozen=True, slots=True)
class EngineVerdict:
    """Why a job failed, what to do, and the reasons.

    `cause` is the known error that decided, if any. `novel_line` is the most relevant line that no
    successful job of the stage writes; "" if none was searched. `log_refused` says why no log
    could be read if that is all there is to say; else "".
    """

    verdict: VerdictKind
    advice: JobAdvice
    category: Category
    confidence: Confidence
    summary: str
    reasons: tuple[Reason, ...]
    cause: Hit | None = None
    service: str = ""
    novel_line: str = ""
    log_refused: str = ""


@dataclass(frozen=True, slots=True)
class Findings:
    """Result of a classifier: known errors, to be ranked with all others, and reasons to show.

    `omitted` are the IDs of known errors that were too slow to search in the whole block.
    """

    hits: tuple[Hit, ...] = ()
    reasons: tuple[Reason, ...] = ()
    omitted: tuple[str, ...] = ()


class LogClassifier(Protocol):
    """Finds known errors in a block of a log. Instances keep no state between jobs."""

    name: str

    def classify(self, facts: JobFacts, block: Block) -> Findings:
        """Return the findings in `block`.

        Its text is untrusted input: never execute or trust it.
        """
        ...
