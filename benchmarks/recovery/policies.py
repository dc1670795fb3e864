"""The policies beside which recovery rules are measured."""

from dataclasses import replace

from apps.diagnosis.enums import VerdictKind
from benchmarks.recovery.evidence import Observer, cms_exit_code
from benchmarks.recovery.replay import Replay
from benchmarks.recovery.world import (
    CODE,
    MINUTE,
    MOST_MEMORY,
    MOST_SECONDS,
    SITES,
    UNCHANGED,
    Attempt,
    Cause,
)


class _Policy:
    def ended(self, attempt: Attempt, replay: Replay) -> None:
        """Take no notice of how retries end."""


class NoRetries(_Policy):
    """Every failed job waits for a person."""

    def decide(self, attempt: Attempt, replay: Replay) -> None:
        replay.leave(attempt)


class ServiceRetries(_Policy):
    """Retries before there were rules: twice, unchanged, by the verdict “service problem”.

    As every retry of the portal, they wait while the service that failed is known to be down.
    """

    ATTEMPTS = 3

    def __init__(self, observer: Observer) -> None:
        self.observer = observer

    def decide(self, attempt: Attempt, replay: Replay) -> None:
        verdict = self.observer.verdict_on(attempt)
        if verdict.verdict != VerdictKind.SERVICE or attempt.number >= self.ATTEMPTS:
            replay.leave(attempt)
            return
        retry_when_up(replay, attempt, verdict.service, lambda: replay.retry(attempt, UNCHANGED))


def retry_when_up(replay: Replay, attempt: Attempt, service: str, retry) -> None:
    """Call `retry` now, or once monitoring shows that a service is up again."""
    up_at = None
    if service:
        up_at = replay.world.outages[service].seen_until(replay.now)
    if up_at is None:
        retry()
    else:
        replay.call(up_at, lambda: retry_when_up(replay, attempt, service, retry))


class Crab(_Policy):
    """CRAB's policy: `RetryJob.py` and `PreJob.py` of dmwm/CRABServer, commit 419cd950.

    Retries after 900 s, three at most, by exit code; 1.3 times the memory after 50115, another site
    after 8020 and 8021. All other codes are fatal. So is a job that the batch system removed at its
    wall time (50664). A job killed for memory counts as 50115, which is kind: where HTCondor's
    policy removed it, CRAB does not retry it. `change_site` is taken to find the input elsewhere.
    """

    RETRIES = 3
    DELAY = 15 * MINUTE
    MEMORY_FACTOR = 1.3
    MORE_MEMORY = frozenset({50115})
    CHANGE_SITE = frozenset({8020, 8021})
    RECOVERABLE = frozenset({1, 50513, 50115, 60307, 8020, 8021, 134, 8001})

    def decide(self, attempt: Attempt, replay: Replay) -> None:
        code = cms_exit_code(attempt)
        if code not in self.RECOVERABLE or attempt.number > self.RETRIES:
            replay.leave(attempt)
            return
        asked = attempt.asked
        if code in self.MORE_MEMORY:
            more = min(round(asked.memory_bytes * self.MEMORY_FACTOR), MOST_MEMORY)
            asked = replace(asked, memory_bytes=more)
        if code in self.CHANGE_SITE:
            site = replay.world.site[attempt.job] if asked.site is None else asked.site
            asked = replace(asked, site=(site + 1) % SITES)
        replay.call(replay.now + self.DELAY, lambda: replay.retry(attempt, asked))


class Oracle(_Policy):
    """Knows the truth: retries what can complete without a person, when it can, as it must.

    Problems of code are a person's, also crashes that a retry would survive.
    """

    def decide(self, attempt: Attempt, replay: Replay) -> None:
        world = replay.world
        job = attempt.job
        arrives = world.input_arrives[job]
        is_lost = attempt.cause == Cause.CORRUPT_INPUT and not world.is_intact_elsewhere[job]
        if attempt.cause in CODE or is_lost or arrives == float("inf"):
            replay.leave(attempt)
            return
        # The need of memory differs by three percent between attempts.
        memory = max(attempt.asked.memory_bytes, round(world.memory[job] * 1.04))
        seconds = max(attempt.asked.seconds, round(world.slow_seconds[job]) + 1)
        if memory > MOST_MEMORY or seconds > MOST_SECONDS:
            replay.leave(attempt)
            return
        hosts = {*attempt.asked.avoided_hosts}
        if attempt.cause == Cause.BLACK_HOLE:
            hosts.add(attempt.host)
        site = attempt.asked.site
        if attempt.cause == Cause.CORRUPT_INPUT:
            site = (world.site[job] + 1) % SITES
        asked = replace(
            attempt.asked,
            site=site,
            memory_bytes=memory,
            seconds=seconds,
            avoided_hosts=tuple(sorted(hosts)),
        )
        start = max(replay.now, arrives)
        if attempt.service:
            start = max(start, world.outages[attempt.service].end_of(replay.now) or 0)
        replay.call(start, lambda: replay.retry(attempt, asked))
