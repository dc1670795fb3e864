"""Decide from the ends of jobs whether a stage is broken: a sequential probability ratio test.

Each end multiplies the likelihood ratio of two hypotheses: jobs fail at the usual rate, or at the
rate of a broken stage (A. Wald, Sequential Tests of Statistical Hypotheses, 1945).
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum


class RatioFinding(Enum):
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

    def find(self, failures: Iterable[bool | None]) -> RatioFinding:
        """Return what the jobs of a stage show, in the order in which they were submitted.

        `failures` says of each job whether it failed; None if it has not ended. Jobs that fail end
        sooner than others, so the first ends are mostly failures in a sound stage, too. A job that
        has not ended therefore speaks against a break, as if it had completed: whatever it turns
        out to be, the evidence is never more than the evidence of all ends.
        """
        evidence = 0.0
        ended = 0.0
        for failed in failures:
            weight = self._weight(failed=bool(failed))
            evidence = max(0.0, evidence + weight)
            if evidence >= self.broken_at:
                return RatioFinding.BROKEN
            if failed is not None:
                ended += weight
        if ended <= math.log(self.missed):
            return RatioFinding.SOUND
        return RatioFinding.UNCLEAR

    def _weight(self, *, failed: bool) -> float:
        if failed:
            return math.log(self.broken / self.usual)
        return math.log((1 - self.broken) / (1 - self.usual))
