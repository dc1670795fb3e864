"""What a rule does about one failed job that it matches: retry, control group or question.

Nothing here reads or writes the database, so a replay can ask the same rules.
"""

import hashlib
import hmac
from dataclasses import dataclass, field
from datetime import timedelta

from django.conf import settings

from apps.jobs.models import Job
from apps.recovery.domain.decisions.match import ParsedRule
from apps.recovery.domain.decisions.remedies import RequestedResources, remedy_for
from apps.recovery.enums import ActionKind, Arm, Mode
from apps.submission.domain.arrays.changed_resources import ResourceChanges

#: Retries that may be unfinished before any of them completed.
FIRST_STEP = 20
GROWTH = 3
#: What completed longer ago lets no more retries start: a service that fails again starts small.
LATELY = timedelta(days=1)
PAUSE = timedelta(hours=1)
_UNCHANGED = ResourceChanges()
#: Equal chances from which the control group is drawn.
_DRAWS = 1_000_000


@dataclass
class Budget:
    """The remaining budget of each rule.

    `left` has the core-seconds of today by the primary key of the rule, `retries_left` the retries
    of jobs of a request by the primary keys of rule and request; without an entry, there is no
    limit.
    """

    left: dict[int, float]
    retries_left: dict[tuple[int, int | None], int] = field(default_factory=dict)

    def has_retry(self, rule_id: int, request_id: int | None) -> bool:
        """Return whether a rule may retry one more job of a request."""
        return self.retries_left.get((rule_id, request_id), 1) > 0

    def take_retry(self, rule_id: int, request_id: int | None) -> None:
        """Count one more retry of a rule for a request."""
        if (rule_id, request_id) in self.retries_left:
            self.retries_left[rule_id, request_id] -= 1

    def spend(self, rule_id: int, core_seconds: int) -> bool:
        """Take the expected cost of a retry; False if too little is left."""
        if self.left[rule_id] < core_seconds:
            return False
        self.left[rule_id] -= core_seconds
        return True


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """A failed attempt of a job.

    `name` names the job in all its attempts, `number` counts them from 1, and `earlier_arm` is
    what was decided about the attempt before, None for a first failure. `request_id` is None for
    jobs that the portal did not submit. `other_cluster` is as for `remedy_for`.
    """

    job: Job
    name: str
    number: int
    requested: RequestedResources
    earlier_arm: str | None = None
    request_id: int | None = None
    other_cluster: str | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """The arm of a failed job, why, and what its retry gets."""

    arm: Arm
    why: str = ""
    changes: ResourceChanges = _UNCHANGED


def choose(rule: ParsedRule, attempt: FailedAttempt, budget: Budget) -> Choice:
    """Return what the rule that decides about a failed job does; take its cost off the budget."""
    definition = rule.definition
    if definition.action.kind == ActionKind.NOTHING:
        return Choice(Arm.PERSON, "The rule leaves it to a person.")
    if definition.action.kind == ActionKind.HOLD:
        return _choose_to_hold(rule)
    if attempt.number >= definition.limits.attempts:
        return Choice(Arm.QUESTION, f"It failed {attempt.number} times, which is the limit.")
    remedy = remedy_for(
        definition.action, attempt.job, attempt.requested, other_cluster=attempt.other_cluster
    )
    if remedy.question:
        return Choice(Arm.QUESTION, remedy.question)
    if rule.record.mode == Mode.PASSIVE:
        return Choice(Arm.PASSIVE, "", remedy.changes)
    return _choose_active(rule, attempt, remedy.changes, budget)


def _choose_to_hold(rule: ParsedRule) -> Choice:
    if rule.record.mode == Mode.PASSIVE:
        return Choice(Arm.PASSIVE)
    return Choice(Arm.QUESTION, "The rule holds the stage until a person has looked at it.")


def _choose_active(
    rule: ParsedRule, attempt: FailedAttempt, changes: ResourceChanges, budget: Budget
) -> Choice:
    """Return what an active rule does about a job that it may retry."""
    rule_id = rule.record.pk
    limits = rule.definition.limits
    # Before the control group is chosen, so that its jobs are left out as often as the others.
    if not budget.has_retry(rule_id, attempt.request_id):
        why = f"The rule has retried {limits.request_percent:g} % of the jobs of the request."
        return Choice(Arm.QUESTION, why, changes)
    is_first_failure = attempt.earlier_arm is None
    if is_first_failure and is_control(
        rule_id=rule_id, job_name=attempt.name, percent=limits.control_percent
    ):
        budget.take_retry(rule_id, attempt.request_id)
        return Choice(Arm.CONTROL)
    if not budget.spend(rule_id, attempt.job.core_seconds):
        return Choice(Arm.BUDGET, "The core-hours of the rule for today are used.", changes)
    budget.take_retry(rule_id, attempt.request_id)
    if attempt.earlier_arm == Arm.CONTROL:
        why = "An earlier attempt was in the control group."
        return Choice(Arm.AFTER_CONTROL, why, changes)
    if not is_first_failure:
        # No later attempt is in the control group, so none counts beside it.
        return Choice(Arm.ACTED_AGAIN, "It failed before.", changes)
    return Choice(Arm.ACTED, "", changes)


def is_control(*, rule_id: int, job_name: str, percent: float) -> bool:
    """Return whether a job is in the control group of a rule.

    `job_name` is the same in all attempts of the job, such as request, stage and number; `percent`
    is the size of the group. The same job is always in the group, or never, and no job can
    influence it.
    """
    key = settings.SECRET_KEY.encode()
    digest = hmac.new(key, f"recovery:{rule_id}:{job_name}".encode(), hashlib.sha256).digest()
    draw = int.from_bytes(digest[:8], "big") % _DRAWS
    return draw < percent / 100 * _DRAWS


def retries_that_may_start(*, completed: int, failed: int, unfinished: int) -> int:
    """Return how many more retries of one step may start.

    The limit of unfinished retries is `GROWTH` times those that `completed` within `LATELY`, at
    least `FIRST_STEP`. Those that `failed` within `PAUSE` count as unfinished: a service that is
    still down gets a few retries an hour, and the other jobs keep their attempts.
    """
    return max(0, max(FIRST_STEP, GROWTH * completed) - failed - unfinished)
