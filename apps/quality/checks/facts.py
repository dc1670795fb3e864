"""What is known of a request's output when it is judged: plain values, no database. None is what is not known."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from apps.quality.enums import Outcome


@dataclass(frozen=True, kw_only=True)
class JobSums:
    """Jobs of a stage that ended, by attempts; `delivered` are jobs whose last attempt completed, no tests."""

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
    """Files that a stage has named; `names` are examples, of those that are larger or smaller than all others first."""

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
    """Contents of the same bins in a reference and as observed."""

    name: str
    edges: Sequence[float]
    reference: Sequence[float]
    observed: Sequence[float]
    link: str = ""
    by: str = ""


@dataclass(frozen=True, kw_only=True)
class Posted:
    """What a tool outside says."""

    name: str
    outcome: Outcome
    why: str
    value: float | None = None
    threshold: float | None = None
    link: str = ""
    by: str = ""


@dataclass(frozen=True, kw_only=True)
class LogSample:
    """Logs of jobs that ended well: how many were read, in how many a known error stands, and which."""

    asked: int = 0
    read: int = 0
    bad: int = 0
    patterns: Mapping[str, int] = field(default_factory=dict)
    line: str = ""


@dataclass(frozen=True, kw_only=True)
class Catalogued:
    """A dataset as the catalogue of datasets knows it."""

    name: str
    files: int | None = None
    events: int | None = None


@dataclass(frozen=True, kw_only=True)
class StageFacts:
    """One stage: what was asked of it, what its jobs said, and what was posted."""

    position: int
    name: str
    kind: str = ""
    jobs_asked: int | None = None
    events_asked: int | None = None
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
    #: Who took it as it is, without jobs that did not complete, and why.
    accepted: str = ""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """A request with its stages in order. `links` are addresses of the portal by what they show."""

    request: str
    experiment: str = ""
    workflow: str = ""
    stages: tuple[StageFacts, ...] = ()
    posted: tuple[Posted, ...] = ()
    catalogue_error: str = ""
    links: Mapping[str, str] = field(default_factory=dict)

    def before(self, stage: StageFacts) -> StageFacts | None:
        """Return the stage whose output this one reads, if it is one of the request's."""
        if stage.position == 0:
            return None
        last = self.stages[stage.position - 1]
        return last if stage.input_dataset in {"", last.output_dataset} else None

    def link(self, stage: StageFacts, what: str) -> str:
        """Return the address of a stage's `jobs` or `failed` jobs; empty where there is none."""
        return self.links.get(f"{what}:{stage.position}", "")
