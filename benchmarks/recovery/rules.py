"""The portal's recovery rules as a policy: its decisions, steps and stops, without a database."""

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any

from apps.recovery.domain.decisions.carry_out import GATHERING, MOST_AT_ONCE, WORTH_AN_ARRAY
from apps.recovery.domain.decisions.choice import (
    LATELY,
    PAUSE,
    Budget,
    FailedAttempt,
    choose,
    retries_that_may_start,
)
from apps.recovery.domain.decisions.decider import COMPANY_WAIT
from apps.recovery.domain.decisions.match import (
    Failure,
    ParsedRule,
    deciding_rule,
    waits_for_company,
)
from apps.recovery.domain.decisions.remedies import RequestedResources, remedy_for
from apps.recovery.domain.figures.effect import ArmFigures, Difference, RuleEffect
from apps.recovery.domain.rules.definition import read_definition
from apps.recovery.domain.rules.useless import does_not_help, evidence_about
from apps.recovery.enums import RETRIED_ARMS, Arm, Mode
from apps.recovery.models import RecoveryRule
from apps.submission.domain.arrays.changed_resources import ResourceChanges
from benchmarks.recovery.evidence import Observer, SeenVerdict
from benchmarks.recovery.policies import retry_when_up
from benchmarks.recovery.replay import Replay
from benchmarks.recovery.world import (
    ASKED_MEMORY,
    ASKED_SECONDS,
    DAY,
    HOUR,
    MINUTE,
    UNCHANGED,
    Asked,
    Attempt,
)

_FIRST_DAY = date(2026, 11, 1)
_REQUESTED = RequestedResources(memory_bytes=ASKED_MEMORY, time_limit_seconds=ASKED_SECONDS)


def active_rules(definitions: Mapping[str, Mapping[str, Any]], **limits: float) -> list[ParsedRule]:
    """Return active rules with these definitions; `limits` replace theirs."""
    rules = []
    for position, (name, values) in enumerate(definitions.items(), start=1):
        changed = {**values, "limits": {**values.get("limits", {}), **limits}}
        rule = RecoveryRule(pk=position, name=name, position=position, mode=Mode.ACTIVE)
        rules.append(ParsedRule(rule, read_definition(changed)))
    return rules


@dataclass(eq=False)
class _Decision:
    """A decision to retry a failed job."""

    rule: ParsedRule
    arm: Arm
    attempt: Attempt
    verdict: SeenVerdict
    asked: Asked
    decided_at: float
    act_at: float
    planned_at: float = 0


@dataclass
class _Steps:
    """The retries of one rule for one service, few at first."""

    waiting: deque[_Decision] = field(default_factory=deque)
    unfinished: int = 0
    completed_at: deque[float] = field(default_factory=deque)
    failed_at: deque[float] = field(default_factory=deque)

    def room(self, now: float) -> int:
        """Return how many more of these retries may start."""
        return retries_that_may_start(
            completed=_count_since(self.completed_at, now - LATELY.total_seconds()),
            failed=_count_since(self.failed_at, now - PAUSE.total_seconds()),
            unfinished=self.unfinished,
        )


@dataclass
class _Progress:
    """What is known about one rule."""

    effect: RuleEffect = field(default_factory=RuleEffect)
    acted_by_day: dict[date, ArmFigures] = field(default_factory=lambda: defaultdict(ArmFigures))


class RecoveryRules:
    """Decides as `decisions.decide`, and acts as `decisions.carry_out` and `rules.useless` do."""

    def __init__(self, observer: Observer, rules: list[ParsedRule]) -> None:
        self.observer = observer
        self.rules = rules
        self.arms: dict[str, int] = defaultdict(int)
        self.progress = {rule.record.pk: _Progress() for rule in rules}
        self.steps: dict[tuple[int, str], _Steps] = defaultdict(_Steps)
        self.stopped_at: dict[str, float] = {}
        #: Failed attempts by hour, known error and service.
        self.alike: dict[tuple[int, str, str], int] = defaultdict(int)
        #: First retries of both arms, from which the planted effects follow.
        self.firsts: list[_Decision] = []
        self.first_match_at: dict[str, float] = {}
        self._latest_arm: dict[int, Arm] = {}
        self._decision_of: dict[int, _Decision] = {}
        self._day = -1
        self._budget = Budget({})
        self._ticks = False

    def decide(self, attempt: Attempt, replay: Replay) -> None:
        verdict = self.observer.verdict_on(attempt)
        hour = int(attempt.end // HOUR)
        self.alike[hour, verdict.cause, verdict.service] += 1
        self._decide(attempt, verdict, replay)

    def _decide(self, attempt: Attempt, verdict: SeenVerdict, replay: Replay) -> None:
        failure = Failure(verdict, alike_jobs=self._alike_jobs(attempt, verdict))
        match = deciding_rule(self.rules, failure)
        age = timedelta(seconds=replay.now - attempt.end)
        if waits_for_company(self.rules, failure, match, age=age):
            later = replay.now + COMPANY_WAIT.total_seconds()
            replay.call(later, lambda: self._decide(attempt, verdict, replay))
            return
        if match is None:
            self.arms[Arm.NO_RULE] += 1
            self._latest_arm[attempt.job] = Arm.NO_RULE
            replay.leave(attempt)
            return
        self.first_match_at.setdefault(match.record.name, replay.now)
        failed = FailedAttempt(
            job=verdict.job,
            name=f"job {attempt.job} of {replay.world.seed}",
            number=attempt.number,
            requested=_REQUESTED,
            earlier_arm=self._latest_arm.get(attempt.job),
        )
        choice = choose(match, failed, self._budget_of_today(replay.now))
        self.arms[choice.arm] += 1
        self._latest_arm[attempt.job] = choice.arm
        if choice.arm not in RETRIED_ARMS:
            replay.leave(attempt)
            return
        wait = match.definition.action.wait_after(attempt.number).total_seconds()
        act_at = replay.now if choice.arm == Arm.CONTROL else replay.now + wait
        asked = _on_top_of(attempt.asked, choice.changes)
        decision = _Decision(match, choice.arm, attempt, verdict, asked, replay.now, act_at)
        progress = self.progress[match.record.pk]
        self.steps[match.record.pk, verdict.service].waiting.append(decision)
        figures = progress.effect.arms.setdefault(choice.arm, ArmFigures())
        figures.jobs += 1
        figures.failed_core_seconds += attempt.core_seconds
        if attempt.number == 1:
            self.firsts.append(decision)
        self._tick_soon(replay)

    def _alike_jobs(self, attempt: Attempt, verdict: SeenVerdict) -> int:
        hour = int(attempt.end // HOUR)
        jobs = 0
        for near in (hour - 1, hour, hour + 1):
            jobs += self.alike[near, verdict.cause, verdict.service]
        return jobs

    def ended(self, attempt: Attempt, replay: Replay) -> None:
        decision = self._decision_of.pop(attempt.job)
        rule = decision.rule.record
        progress = self.progress[rule.pk]
        steps = self.steps[rule.pk, decision.verdict.service]
        steps.unfinished -= 1
        day = progress.acted_by_day[_date(decision.decided_at)]
        for figures in (progress.effect.arms[decision.arm], day):
            if figures is day and decision.arm not in (Arm.ACTED, Arm.ACTED_AGAIN):
                continue
            if attempt.cause is None:
                figures.completed += 1
            else:
                figures.failed += 1
                figures.wasted_core_seconds += attempt.core_seconds
        if attempt.cause is None:
            steps.completed_at.append(replay.now)
        else:
            steps.failed_at.append(replay.now)
        self._stop_if_useless(decision.rule, replay.now)

    def _stop_if_useless(self, rule: ParsedRule, now: float) -> None:
        limits = rule.definition.limits
        evidence = evidence_about(self.progress[rule.record.pk].acted_by_day, today=_date(now))
        is_useless = does_not_help(evidence, least_success_percent=limits.least_success_percent)
        if rule.record.mode == Mode.ACTIVE and is_useless:
            rule.record.mode = Mode.PASSIVE
            self.stopped_at[rule.record.name] = now

    def differences(self) -> dict[str, Difference]:
        """Return the effect that the portal shows, by rule; without those not yet known."""
        shown = {}
        for rule in self.rules:
            effect = self.progress[rule.record.pk].effect.difference
            if effect is not None:
                shown[rule.record.name] = effect
        return shown

    def _budget_of_today(self, now: float) -> Budget:
        day = int(now // DAY)
        if day != self._day:
            self._day = day
            left = {}
            for rule in self.rules:
                self._stop_if_useless(rule, now)
                left[rule.record.pk] = rule.definition.limits.core_hours_a_day * 3600
            self._budget = Budget(left)
        return self._budget

    def _tick_soon(self, replay: Replay) -> None:
        if not self._ticks:
            self._ticks = True
            replay.call(replay.now + MINUTE, lambda: self._tick(replay))

    def _tick(self, replay: Replay) -> None:
        """Start the retries that are due, as the task that runs every minute."""
        self._ticks = False
        for steps in self.steps.values():
            self._act(steps, replay)
        if any(steps.waiting for steps in self.steps.values()):
            self._tick_soon(replay)

    def _act(self, steps: _Steps, replay: Replay) -> None:
        due = [decision for decision in steps.waiting if decision.act_at <= replay.now]
        if not due:
            return
        due.sort(key=lambda decision: decision.act_at)
        is_gathered = due[0].act_at <= replay.now - GATHERING.total_seconds()
        if len(due) < WORTH_AN_ARRAY and not is_gathered:
            return
        starting = due[: min(steps.room(replay.now), MOST_AT_ONCE)]
        for decision in starting:
            steps.waiting.remove(decision)
            steps.unfinished += 1
            decision.planned_at = replay.now
            self._decision_of[decision.attempt.job] = decision
            self._start(decision, replay)

    def _start(self, decision: _Decision, replay: Replay) -> None:
        attempt = decision.attempt
        retry_when_up(
            replay,
            attempt,
            decision.verdict.service,
            lambda: replay.retry(attempt, decision.asked),
        )


def _count_since(times: deque[float], since: float) -> int:
    """Drop times before `since`; return how many are left."""
    while times and times[0] < since:
        times.popleft()
    return len(times)


def _date(at: float) -> date:
    return _FIRST_DAY + timedelta(seconds=at)


def _on_top_of(had: Asked, changes: ResourceChanges) -> Asked:
    """Return what a retry asks for: never less than the failed attempt."""
    earlier = ResourceChanges(had.memory_bytes, had.seconds, had.avoided_hosts)
    now = changes.combined_with(earlier)
    return Asked(now.memory_bytes, now.time_limit_seconds, now.avoided_hosts, had.site)


def planted_effects(policy: RecoveryRules, replay: Replay) -> dict[str, float]:
    """Return the true effect of each rule on the first retries of the jobs that it matched.

    Each of these jobs is run twice: with the action, and unchanged as in the control group.
    """
    with_action: dict[str, list[bool]] = defaultdict(list)
    unchanged: dict[str, list[bool]] = defaultdict(list)
    for decision in policy.firsts:
        action = decision.rule.definition.action
        name = decision.rule.record.name
        wait = action.wait_minutes * MINUTE
        control_at = decision.planned_at
        if decision.arm != Arm.CONTROL:
            control_at -= wait
        changes = remedy_for(action, decision.verdict.job, _REQUESTED).changes
        asked = _on_top_of(UNCHANGED, changes)
        with_action[name].append(_completes(decision, asked, control_at + wait, replay))
        unchanged[name].append(_completes(decision, UNCHANGED, control_at, replay))
    return {name: _share(with_action[name]) - _share(unchanged[name]) for name in with_action}


def _completes(decision: _Decision, asked: Asked, at: float, replay: Replay) -> bool:
    service = decision.verdict.service
    if service:
        outages = replay.world.outages[service]
        while (up_at := outages.seen_until(at)) is not None:
            at = up_at
    return replay.world.run(decision.attempt.job, 2, at, asked).cause is None


def _share(completed: Iterable[bool]) -> float:
    values = list(completed)
    return sum(values) / len(values)
