"""Replay the failed jobs of a month under a policy, and count what becomes of them."""

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from benchmarks.recovery.world import (
    CODE,
    DAY,
    MINUTE,
    Asked,
    Attempt,
    Cause,
    World,
)

#: A failed job is decided about within a minute of its end.
DECIDED_AFTER = MINUTE
#: A person answers about a job after a day; code, and files that are lost, take three.
ANSWER_DAYS = 1
FIX_DAYS = 3
_FIXED_BY_PEOPLE = CODE | {Cause.CORRUPT_INPUT, Cause.MISSING_INPUT}
#: A production is what an experiment submits in a day; it counts as complete when so many of its
#: jobs are done. The rest are mostly problems of code, which take as long under every policy.
DONE_SHARE = 0.95


class Policy(Protocol):
    """Decides about failed attempts by calling `retry` or `leave` of the replay."""

    def decide(self, attempt: Attempt, replay: "Replay") -> None: ...

    def ended(self, attempt: Attempt, replay: "Replay") -> None:
        """Hear of a retry that has ended, completed or not, before it is decided about."""


@dataclass
class Result:
    """What became of the failed jobs under one policy."""

    jobs: int = 0
    failed: int = 0
    recovered: int = 0
    recovered_by_cause: Counter[Cause] = field(default_factory=Counter)
    failed_by_cause: Counter[Cause] = field(default_factory=Counter)
    retries: int = 0
    wasted_core_hours: float = 0
    questions: int = 0
    code_problems: int = 0
    code_retried: int = 0
    days_to_complete: float = 0


class Replay:
    """The events after first attempts, in order of time."""

    def __init__(self, world: World, firsts: Sequence[Attempt], policy: Policy) -> None:
        self.world = world
        self.policy = policy
        self.firsts = firsts
        self.now = 0.0
        self.first_cause = {}
        self.completed_at = {}
        self.left_at = {}
        self.code_problems: set[int] = set()
        self.code_retried: set[int] = set()
        self.result = Result()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0

    def run(self) -> Result:
        for attempt in self.firsts:
            if attempt.cause is not None:
                self.first_cause[attempt.job] = attempt.cause
                self.call(attempt.end + DECIDED_AFTER, lambda failed=attempt: self._failed(failed))
        while self._events:
            self.now, _, event = heapq.heappop(self._events)
            event()
        self._count()
        return self.result

    def call(self, at: float, event: Callable[[], None]) -> None:
        """Call a function at a time."""
        self._number += 1
        heapq.heappush(self._events, (at, self._number, event))

    def retry(self, attempt: Attempt, asked: Asked) -> Attempt:
        """Submit a failed job again now; return how that ends."""
        retry = self.world.run(attempt.job, attempt.number + 1, self.now, asked)
        self.result.retries += 1
        if attempt.cause in CODE:
            self.code_retried.add(attempt.job)
        self.call(retry.end + DECIDED_AFTER, lambda: self._ended(retry))
        return retry

    def leave(self, attempt: Attempt) -> None:
        """Leave a failed job to a person."""
        self.left_at[attempt.job] = (self.now, attempt.cause)

    def _failed(self, attempt: Attempt) -> None:
        if attempt.cause in CODE:
            self.code_problems.add(attempt.job)
        self.policy.decide(attempt, self)

    def _ended(self, attempt: Attempt) -> None:
        self.policy.ended(attempt, self)
        if attempt.cause is None:
            self.completed_at[attempt.job] = attempt.end
            return
        self.result.wasted_core_hours += attempt.core_seconds / 3600
        self._failed(attempt)

    def _count(self) -> None:
        result = self.result
        result.jobs = self.world.jobs
        result.failed = len(self.first_cause)
        result.recovered = len(self.completed_at)
        result.failed_by_cause = Counter(self.first_cause.values())
        for job in self.completed_at:
            result.recovered_by_cause[self.first_cause[job]] += 1
        result.questions = len(self.left_at)
        result.code_problems = len(self.code_problems)
        result.code_retried = len(self.code_retried)
        if result.failed != result.recovered + result.questions:
            raise AssertionError("a failed job is neither recovered nor left to a person")
        result.days_to_complete = self._days_to_complete()

    def _days_to_complete(self) -> float:
        """Return the mean over productions of the days until nearly all their jobs are done."""
        ends: dict[tuple[int, int], list[float]] = defaultdict(list)
        for attempt in self.firsts:
            job = attempt.job
            end = attempt.end
            if job in self.completed_at:
                end = self.completed_at[job]
            elif job in self.left_at:
                left_at, cause = self.left_at[job]
                days = FIX_DAYS if cause in _FIXED_BY_PEOPLE else ANSWER_DAYS
                end = left_at + days * DAY + self.world.duration[job]
            day = int(self.world.submitted[job] // DAY)
            ends[self.world.experiment[job], day].append(end - day * DAY)
        days = [np.quantile(times, DONE_SHARE) / DAY for times in ends.values()]
        return float(np.mean(days))
