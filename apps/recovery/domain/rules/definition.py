"""The definition of a recovery rule: scope, condition, action and limits, and its sentence."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from apps.clusters.schedulers.base import JobState
from apps.core.domain.quantities import round_duration
from apps.core.errors import InvalidFields
from apps.diagnosis.enums import Category, VerdictKind
from apps.recovery.enums import ActionKind

#: Largest factor by which a retry may get more than the failed attempt.
MOST_FACTOR = 4.0
MOST_ATTEMPTS = 10
MOST_ALIKE_JOBS = 1000
MOST_HOLD_REASON = 100
MOST_WAIT_MINUTES = 7 * 24 * 60
#: A part of a hold reason. An empty one would be part of every reason.
HoldReason = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MOST_HOLD_REASON)
]
#: How an action runs a job again, if memory and wall time stay.
_HOW = {
    ActionKind.HALF_EVENTS: "with half of its events",
    ActionKind.AVOID_HOST: "on another host",
    ActionKind.OTHER_CLUSTER: "on another cluster",
    ActionKind.AVOID_SITE: "at another site",
}
_VERDICTS = {
    VerdictKind.SERVICE: "a service problem",
    VerdictKind.CODE: "a code problem",
    VerdictKind.RESOURCE: "an exceeded resource limit",
    VerdictKind.USER: "a cancellation by a user",
    VerdictKind.UNKNOWN: "an unknown cause",
}
#: What an action multiplies.
_GROWS = {ActionKind.MORE_MEMORY: "memory", ActionKind.MORE_TIME: "wall time"}


class _Part(BaseModel):
    """A part of a definition. Unknown names are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Scope(_Part):
    """The jobs that a rule is for; empty: all. Clusters, sites and stages are names."""

    workflow_type: str = Field("", max_length=64)
    stage: str = Field("", max_length=64)
    cluster: str = Field("", max_length=64)
    site: str = Field("", max_length=64)


class Condition(_Part):
    """Conditions on a failure. An empty list matches anything, any other list one of its values.

    `hold_reasons` are parts of the reason for which the scheduler held the job when it ended, in
    upper or lower case; see `apps.recovery.domain.decisions.match.hold_reason`.
    `alike_jobs` is how many jobs, this one counted, must fail by the same known error and service
    within about an hour; see `apps.recovery.domain.decisions.alike`.
    """

    verdicts: tuple[VerdictKind, ...] = ()
    categories: tuple[Category, ...] = ()
    known_errors: tuple[str, ...] = ()
    services: tuple[str, ...] = ()
    exit_codes: tuple[int, ...] = ()
    signals: tuple[int, ...] = ()
    end_states: tuple[JobState, ...] = ()
    hold_reasons: tuple[HoldReason, ...] = ()
    alike_jobs: int = Field(0, ge=0, le=MOST_ALIKE_JOBS)

    @property
    def is_empty(self) -> bool:
        return not any(self.model_dump(exclude={"alike_jobs"}).values())


class Action(_Part):
    """What the next attempt gets.

    `factor` multiplies the memory or the wall time of the failed attempt, at most up to
    `most_factor` times what its stage asks for. The first retry waits `wait_minutes`, each later
    one twice as long as the one before, and all while a service that the job needs is down.
    On which other cluster a job can run says `apps.submission.domain.retries.other_clusters`.
    """

    kind: ActionKind
    factor: float = Field(1.5, gt=1, le=MOST_FACTOR)
    most_factor: float = Field(2.0, gt=1, le=MOST_FACTOR)
    wait_minutes: int = Field(0, ge=0, le=MOST_WAIT_MINUTES)

    @property
    def goes_elsewhere(self) -> bool:
        """Whether retries run on another cluster than the failed job."""
        return self.kind in (ActionKind.OTHER_CLUSTER, ActionKind.AVOID_SITE)

    def wait_after(self, attempt: int) -> timedelta:
        """Return how long the retry of a failed attempt waits; the first attempt is 1."""
        minutes = min(self.wait_minutes * 2 ** (attempt - 1), MOST_WAIT_MINUTES)
        return timedelta(minutes=minutes)


class Limits(_Part):
    """How far a rule goes.

    `attempts` counts the first one. `control_percent` of the matching jobs are the control group:
    they get one unchanged retry at once.
    `request_percent` bounds the retries of a request's jobs, as a share of all its jobs.
    A rule stops itself if less than `least_success_percent` of its retries complete.
    """

    attempts: int = Field(3, ge=2, le=MOST_ATTEMPTS)
    core_hours_a_day: float = Field(1000, gt=0, le=10_000_000)
    control_percent: float = Field(5, ge=0, le=50)
    request_percent: float = Field(100, gt=0, le=100)
    least_success_percent: float = Field(30, ge=0, le=99)


class Definition(_Part):
    """A whole rule without its name and experiment."""

    scope: Scope = Scope()
    condition: Condition
    action: Action
    limits: Limits = Limits()

    @property
    def retries(self) -> bool:
        """Whether the action is a retry, so that limits and effect mean something."""
        return self.action.kind not in (ActionKind.HOLD, ActionKind.NOTHING)

    @property
    def sentence(self) -> str:
        """Return the rule as a sentence: “When a job …, run it again with …, if …”."""
        conditions = _join(self._conditions)
        if not conditions:
            return f"When a job {self._subject} {self._end}, {self._remedy}."
        if not self.retries:
            # "Ask a person if …" would mean something else.
            return f"When a job {self._subject} {self._end} and {conditions}, {self._remedy}."
        return f"When a job {self._subject} {self._end}, {self._remedy}, if {conditions}."

    @property
    def _subject(self) -> str:
        parts = []
        if self.scope.stage:
            parts.append(f"of stage {self.scope.stage}")
        else:
            parts.append("of any stage")
        if self.scope.workflow_type:
            parts.append(f"of {self.scope.workflow_type} requests")
        if self.scope.cluster:
            parts.append(f"on {self.scope.cluster}")
        if self.scope.site:
            parts.append(f"at {self.scope.site}")
        return " ".join(parts)

    @property
    def _end(self) -> str:
        if not self.condition.end_states:
            return "fails"
        states = [state.text for state in self.condition.end_states]
        return f"ends as {_either(states)}"

    @property
    def _conditions(self) -> list[str]:
        """What must be true of the failure, besides its end state."""
        condition = self.condition
        parts = []
        if condition.verdicts:
            labels = [_VERDICTS[verdict] for verdict in condition.verdicts]
            parts.append(f"the verdict is {_either(labels)}")
        if condition.categories:
            labels = [category.label.lower() for category in condition.categories]
            parts.append(f"the category is {_either(labels)}")
        if condition.known_errors:
            parts.append(f"the error is {_either(condition.known_errors)}")
        if condition.services:
            parts.append(f"the cause is {_either(condition.services)}")
        if condition.exit_codes:
            parts.append(f"the exit code is {_either(map(str, condition.exit_codes))}")
        if condition.signals:
            parts.append(f"the signal is {_either(map(str, condition.signals))}")
        if condition.hold_reasons:
            quoted = [f"“{reason}”" for reason in condition.hold_reasons]
            parts.append(f"the job was held for {_either(quoted)}")
        if condition.alike_jobs > 1:
            parts.append(f"at least {condition.alike_jobs} jobs fail alike within an hour")
        return parts

    @property
    def _remedy(self) -> str:
        action = self.action
        if action.kind == ActionKind.NOTHING:
            return "leave it to a person"
        if action.kind == ActionKind.HOLD:
            return "hold its stage and ask a person"
        after = ""
        if action.wait_minutes:
            after = f" after {round_duration(action.wait_minutes * 60)}"
            if self.limits.attempts > 2:
                after += " (later twice as long each time)"
        how = ""
        if action.kind in _GROWS:
            how = (
                f" with {action.factor:g} × {_GROWS[action.kind]}, up to "
                f"{action.most_factor:g} × what its stage asks for"
            )
        if action.kind in _HOW:
            how = f" {_HOW[action.kind]}"
        retries = self.limits.attempts - 1
        times = {1: "once", 2: "twice"}.get(retries, f"{retries} times")
        return f"run it again{after}{how}, {times} at most"


def read_definition(values: Mapping[str, Any]) -> Definition:
    """Read a definition. Raises `InvalidFields` that names each wrong field."""
    try:
        definition = Definition.model_validate(values)
    except ValidationError as error:
        raise InvalidFields(_problems(error)) from error
    if definition.condition.is_empty:
        raise InvalidFields({"condition": ["Choose at least one: a rule must not match anything."]})
    if (
        definition.action.kind in _GROWS
        and definition.action.most_factor < definition.action.factor
    ):
        raise InvalidFields(
            {"action.most_factor": ["The bound is smaller than the factor of one retry."]}
        )
    return definition


def _problems(error: ValidationError) -> dict[str, list[str]]:
    problems: dict[str, list[str]] = {}
    for detail in error.errors():
        field = ".".join(map(str, detail["loc"])) or "definition"
        problems.setdefault(field, []).append(f"{detail['msg']}.")
    return problems


def _join(parts: Sequence[str]) -> str:
    """Return parts as “a”, “a and b” or “a, b, and c”."""
    if len(parts) <= 2:
        return " and ".join(parts)
    return f"{', '.join(parts[:-1])}, and {parts[-1]}"


def _either(texts: Any) -> str:
    return " or ".join(texts)
