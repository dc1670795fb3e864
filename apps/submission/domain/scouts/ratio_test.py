"""Decide from the ends of jobs whether a stage is broken: a sequential probability ratio test.

Each end multiplies the likelihood ratio of two hypotheses: jobs fail at the usual rate, or at the
rate of a broken stage (A. Wald, Sequential Tests of Statistical Hypotheses, 1945).
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

#: The usual failure rate lies in this range, whatever past jobs say.
LOWEST_USUAL, HIGHEST_USUAL = 0.01, 0.5
#: What is assumed of a stage without past jobs: so many jobs, of which one failed.
_ASSUMED_JOBS = 20


class Finding(Enum):
    """What the ends of jobs show."""

    UNCLEAR = "unclear"
    SOUND = "sound"
    BROKEN = "broken"


@dataclass(frozen=True)
class RatioTest:
    """The test of one stage.

    `usual` is the failure rate of earlier jobs, `jobs` the number of jobs of the stage,
    `false_stop` the probability that a stage that fails at its usual rate is ever found broken,
    `missed` the probability that the scouts of a broken stage are found sound.
    """

    usual: float
    jobs: int
    false_stop: float
    missed: float

    @property
    def broken(self) -> float:
        """The failure rate of a broken stage: at least half, and half of what usually succeeds."""
        return (1 + self.usual) / 2

    @property
    def broken_at(self) -> float:
        """The evidence from which a stage is broken.

        The evidence is the largest over all jobs at which the break may have begun. By Ville's
        inequality that from one job exceeds n / p with a probability of at most p / n, so that
        from any of n jobs does with at most p.
        """
        return math.log(max(self.jobs, 1) / self.false_stop)

    def evidence(self, failures: Iterable[bool]) -> float:
        """Return the logarithm of the likelihood ratio since the break began, at least 0.

        `failures` says of each job, in the order of their ends, whether it failed.
        """
        evidence = 0.0
        for failed in failures:
            evidence = max(0.0, evidence + self._weight(failed=failed))
        return evidence

    def find(self, failures: Iterable[bool]) -> Finding:
        """Return what the ends of all scouts, in their order, show."""
        evidence = 0.0
        total = 0.0
        for failed in failures:
            weight = self._weight(failed=failed)
            total += weight
            evidence = max(0.0, evidence + weight)
            if evidence >= self.broken_at:
                return Finding.BROKEN
        if total <= math.log(self.missed):
            return Finding.SOUND
        return Finding.UNCLEAR

    def _weight(self, *, failed: bool) -> float:
        if failed:
            return math.log(self.broken / self.usual)
        return math.log((1 - self.broken) / (1 - self.usual))


def usual_rate(*, attempts: int, completed: int) -> float:
    """Return the failure rate to expect after so many earlier jobs."""
    failed = attempts - completed
    rate = (failed + 1) / (attempts + _ASSUMED_JOBS)
    return min(max(rate, LOWEST_USUAL), HIGHEST_USUAL)
