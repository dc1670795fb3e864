"""Facts about the output of a request, as plain values without database. None is unknown."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from apps.quality.enums import Outcome


@dataclass(frozen=True, kw_only=True)
class JobSums:
    """Finished attempts of a stage.

    `delivered` counts jobs whose last attempt completed, without tests.
    """

    ended: int = 0
    completed: int = 0
    failed: int = 0
    retried: int = 0
    delivered: int | None = None
    tests: int = 0

    @property
    def good(self) -> int:
        return self.completed if self.delivered is None else self.delivered


@dataclass(frozen=True, kw_only=True)
class Files:
    """Files of a stage.

    `sizes` has the smallest and largest files; `twice` and `elsewhere` are examples of duplicates.
    """

    count: int = 0
    size_bytes: int = 0
    smallest_bytes: int = 0
    largest_bytes: int = 0
    sizes: tuple[tuple[str, int], ...] = ()
    twice: tuple[str, ...] = ()
    twice_count: int = 0
    elsewhere: tuple[tuple[str, str], ...] = ()
    elsewhere_count: int = 0


@dataclass(frozen=True, kw_only=True)
class Histogram:
    """A histogram and its reference in the same bins."""

    name: str
    edges: Sequence[float]
    reference: Sequence[float]
    observed: Sequence[float]
    link: str = ""
    by: str = ""


@dataclass(frozen=True, kw_only=True)
class Posted:
    """A result of an external tool."""

    name: str
    outcome: Outcome
    why: str
    value: float | None = None
    threshold: float | None = None
    link: str = ""
    by: str = ""


@dataclass(frozen=True, kw_only=True)
class LogSample:
    """Logs of completed jobs: how many were read, how many contain known errors, and which."""

    sampled: int = 0
    read: int = 0
    bad: int = 0
    patterns: Mapping[str, int] = field(default_factory=dict)
    line: str = ""


@dataclass(frozen=True, kw_only=True)
class Catalogued:
    """A dataset in the dataset catalogue."""

    name: str
    files: int | None = None
    events: int | None = None


@dataclass(frozen=True, kw_only=True)
class StageFacts:
    """A stage: what was requested, what its jobs reported, and what was posted."""

    position: int
    name: str
    kind: str = ""
    jobs_requested: int | None = None
    events_requested: int | None = None
    input_dataset: str = ""
    output_dataset: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    files_in: int | None = None
    events_in: int | None = None
    files_out: int | None = None
    events_out: int | None = None
    reports: int = 0
    jobs: JobSums = JobSums()
    files: Files | None = None
    histograms: tuple[Histogram, ...] = ()
    posted: tuple[Posted, ...] = ()
    logs: LogSample = LogSample()
    catalogued: Catalogued | None = None
    also_written_by: tuple[str, ...] = ()
    #: Who accepted the stage as it is, without the jobs that did not complete, and why.
    accepted: str = ""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """A request with its stages in order. `links` maps names of lists to their URLs."""

    request: str
    experiment: str = ""
    workflow: str = ""
    stages: tuple[StageFacts, ...] = ()
    posted: tuple[Posted, ...] = ()
    catalogue_error: str = ""
    links: Mapping[str, str] = field(default_factory=dict)

    def before(self, stage: StageFacts) -> StageFacts | None:
        """Return the stage of this request whose output a stage reads, or None."""
        if stage.position == 0:
            return None
        last = self.stages[stage.position - 1]
        if stage.input_dataset in {"", last.output_dataset}:
            return last
        return None

    def link(self, stage: StageFacts, what: str) -> str:
        """Return the URL of a stage's `jobs` or `failed` jobs, or an empty text."""
        return self.links.get(f"{what}:{stage.position}", "")
