"""The interface of checks: a named rule reads a request and facts, and yields problems to fix."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from typing import Any

from django.db.models import TextChoices

from apps.core.domain.plugins import first_paragraph
from apps.production.domain.content.model import RequestContent, StageContent
from apps.production.domain.estimates.figures import NO_ESTIMATE, Estimate, StageEstimate
from apps.production.domain.outputs.datasets import Dataset


class Severity(TextChoices):
    """The effect of a problem, most severe first."""

    INVALID = "invalid", "cannot be saved"
    ERROR = "error", "must be fixed"
    WARNING = "warning", "should be fixed"


@dataclass(frozen=True)
class Fix:
    """A change that fixes a problem: the label of its button, and the new values by field path."""

    label: str
    values: Mapping[str, Any]

    def applied_to(self, content: RequestContent) -> RequestContent:
        """Return the content with this change. Raises `LookupError` if the stage does not exist."""
        for path, value in self.values.items():
            content = _replace_at(content, path.split("."), value)
        return content


@dataclass(frozen=True)
class Problem:
    """A problem to fix: the path of its field, such as `stages.0.memory_bytes`, and a message."""

    path: str
    message: str
    fix: Fix | None = None
    #: Whether the page of the request offers to bring the dataset to disk.
    can_stage: bool = False

    def below(self, path: str) -> "Problem":
        """Return the problem of a stage with `path` before all its paths."""
        fix = self.fix and Fix(
            self.fix.label, {f"{path}.{name}": value for name, value in self.fix.values.items()}
        )
        return Problem(f"{path}.{self.path}", self.message, fix, self.can_stage)


@dataclass(frozen=True)
class PlannedWindow:
    title: str
    starts_at: datetime
    ends_at: datetime


@dataclass(frozen=True)
class ServiceNow:
    """A service that a stage needs: its current state and planned downtimes."""

    name: str
    state: str
    windows: tuple[PlannedWindow, ...] = ()


@dataclass(frozen=True)
class ClusterLimits:
    """The limits of a cluster for a single job. None is no limit."""

    cluster: str
    memory_bytes: int | None = None
    wall_seconds: int | None = None


@dataclass(frozen=True)
class OtherRequest:
    """Another submitted request of the experiment.

    Rejected, cancelled and superseded requests are left out.
    """

    key: str
    title: str = ""
    runs: Mapping[str, str] = field(default_factory=dict)
    first_seed: int | None = None
    jobs: int = 0
    configuration: str = ""
    release: str = ""


@dataclass(frozen=True)
class StageBefore:
    """How often earlier requests of the experiment used a stage name, and each service with it."""

    requests: int = 0
    services: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class EarlierStage:
    """The size of a stage of an earlier request of the experiment. The name is in lower case."""

    request: str
    name: str
    jobs: int = 0
    wall_seconds: int = 0
    memory_bytes: int = 0


@dataclass(frozen=True)
class EarlierBlock:
    """How many run numbers an earlier request reserved, and for how many jobs."""

    jobs: int
    runs: int


@dataclass(frozen=True)
class Facts:
    """The facts that checks may use.

    Only the first two fields are always set. The others may be empty.
    """

    today: date
    services: frozenset[str]
    service_states: Mapping[str, ServiceNow] = field(default_factory=dict)
    offers: tuple[ClusterLimits, ...] = ()
    others: tuple[OtherRequest, ...] = ()
    #: The request that writes a dataset, by dataset name.
    written_by: Mapping[str, str] = field(default_factory=dict)
    #: None if the portal has no catalogue. Names that are missing are not in the catalogue.
    datasets: Mapping[str, Dataset] | None = None
    #: Datasets that the portal will define for this request, with the last error or an empty text.
    defining: Mapping[str, str] = field(default_factory=dict)
    #: Datasets whose files the portal knows itself, as it drafted this request for them.
    held: frozenset[str] = frozenset()
    #: Why the catalogue is unavailable. Empty if it is available.
    catalogue_fault: str = ""
    #: Why the portal cannot list the files for keep-up processing. Empty if it can or need not.
    listing_fault: str = ""
    #: This request's releases if all were used before, otherwise every release that the experiment
    #: has used.
    releases: frozenset[str] = frozenset()
    #: By stage name in lower case.
    stages_before: Mapping[str, StageBefore] = field(default_factory=dict)
    #: Of the newest earlier requests.
    earlier_stages: tuple[EarlierStage, ...] = ()
    earlier_blocks: tuple[EarlierBlock, ...] = ()
    #: The largest output of past stages in bytes, by stage name in lower case.
    largest_outputs: Mapping[str, int] = field(default_factory=dict)
    #: The largest use of memory by past jobs of the experiment, and the memory of the largest known
    #: node. 0 if unknown.
    memory_used_bytes: float = 0
    largest_node_bytes: int = 0
    #: Username of the author, if they are no longer a liaison.
    former_contact: str = ""
    #: When the release or configuration of a stage last changed, by stage position.
    changed_at: Mapping[int, datetime] = field(default_factory=dict)
    #: When a job of this request last completed, by stage name in lower case.
    completed_at: Mapping[str, datetime] = field(default_factory=dict)
    estimate: Estimate = NO_ESTIMATE


Check = Callable[[RequestContent, Facts], Iterator[Problem]]
StageCheck = Callable[[StageContent, Facts], Iterator[Problem]]
PastCheck = Callable[[StageContent, StageEstimate], Iterator[Problem]]


@dataclass(frozen=True)
class Rule:
    """A check with its severity and a one-line description of the requirement."""

    severity: Severity
    description: str
    check: Check = field(compare=False)

    def __call__(self, content: RequestContent, facts: Facts) -> Iterator[Problem]:
        return self.check(content, facts)


def rule(severity: Severity) -> Callable[[Check], Rule]:
    """Turn a function into a rule. The first paragraph of its docstring becomes the description."""

    def make(check: Check) -> Rule:
        return Rule(severity, first_paragraph(check), check)

    return make


def stage_rule(severity: Severity) -> Callable[[StageCheck], Rule]:
    """Turn a function of one stage into a rule.

    The paths of its problems and fixes are fields of the stage.
    """

    def make(check: StageCheck) -> Rule:
        def check_stages(content: RequestContent, facts: Facts) -> Iterator[Problem]:
            for path, stage in stages(content):
                for problem in check(stage, facts):
                    yield problem.below(path)

        check_stages.__doc__ = check.__doc__
        return rule(severity)(check_stages)

    return make


def past_rule(severity: Severity) -> Callable[[PastCheck], Rule]:
    """Turn a function of one stage and its estimate into a rule for stages with past jobs.

    Paths are as in `stage_rule`.
    """

    def make(check: PastCheck) -> Rule:
        def check_stages(content: RequestContent, facts: Facts) -> Iterator[Problem]:
            for (path, stage), past in zip(stages(content), facts.estimate.stages, strict=False):
                if not past.past_jobs:
                    continue
                for problem in check(stage, past):
                    yield problem.below(path)

        check_stages.__doc__ = check.__doc__
        return rule(severity)(check_stages)

    return make


@dataclass(frozen=True)
class RuleFinding:
    """A problem, with the name and severity of the rule that reported it."""

    rule: str
    severity: Severity
    path: str
    message: str
    fix: Fix | None = None
    can_stage: bool = False

    @property
    def blocks(self) -> bool:
        """Whether this finding prevents submission."""
        return self.severity != Severity.WARNING


def stages(content: RequestContent) -> Iterator[tuple[str, StageContent]]:
    for position, stage in enumerate(content.stages):
        yield f"stages.{position}", stage


def _replace_at(place: Any, parts: Sequence[str], value: Any) -> Any:
    """Return a copy of a request, a stage or arguments with the value at a path.

    An empty argument is removed.
    """
    name, *rest = parts
    if isinstance(place, tuple):
        here = int(name)
        return (*place[:here], _replace_at(place[here], rest, value), *place[here + 1 :])
    if isinstance(place, Mapping):
        others = {other: old for other, old in place.items() if other != name}
        return others if value in (None, "") else {**others, name: value}
    return replace(
        place, **{name: _replace_at(getattr(place, name), rest, value) if rest else value}
    )
