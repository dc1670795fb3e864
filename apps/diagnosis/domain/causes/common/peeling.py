"""Find what the failures of many jobs have in common.

The strongest cause is taken, its jobs are masked, and the rest is tested again. Jobs of one
submission fail together, so the unit is the submission. Attributes that vary within a submission
(host, site, hour) are compared within it, where its jobs are exchangeable (Mantel-Haenszel).
Attributes of a whole submission (release, stage, user) are compared between submissions of the same
stage, and measured by the scatter of whole submissions.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, lgamma, log, sqrt

import numpy as np
import numpy.typing as npt

from apps.jobs.domain.statistics.columns import encode_column

Codes = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

#: Probability of a false cause in one analysis, for all values of all attributes together.
FALSE_ALARM = 1e-4
#: Minimum excess failures of a cause. Between submissions, the excess must also show in many of
#: them alike (this is the square root of their number).
LEAST_EXCESS = 5.0
LEAST_ALIKE = 3.0
#: Minimum number of other jobs of a stage to compare a value with.
LEAST_OTHERS = 30
MOST_CAUSES = 20
SIGMAS = 1.96
#: Values whose excess is below this many standard deviations need no exact probability.
_PROMISING = 3.0
#: Up to this many failures of a value, their probability is computed exactly. `_LEAST_LOG` is the
#: logarithm used for a probability too small to compute.
_EXACT = 300
_LEAST_LOG = -700.0
#: Maximum number of pairs of value and submission that are counted in an array; more are sorted.
_MOST_CELLS = 8_000_000


@dataclass(frozen=True)
class JobColumns:
    """Jobs as columns: submission, `stage` and other attributes as numbers from 0, and failure.

    `outages` maps each service to the jobs that needed it and ran during an outage.
    """

    failed: Mask
    submission: Codes
    attributes: Mapping[str, Codes]
    outages: Mapping[str, Mask]


@dataclass(frozen=True)
class FoundCause:
    """A value of an attribute with more failures than expected.

    `value` is its number, 1 for an outage. `low` and `high` are the bounds of the 95 % interval of
    the excess. `other_jobs` and `other_failed` count the jobs without the value, except those of
    stronger causes.
    """

    attribute: str
    value: int
    jobs: int
    failed: int
    expected: float
    low: float
    high: float
    other_jobs: int
    other_failed: int

    @property
    def excess(self) -> float:
        return self.failed - self.expected


@dataclass(frozen=True)
class _Excess:
    """Failures of each value: count, expectation, variance, and log probability of the count."""

    counted: Numbers
    expected: Numbers
    variance: Numbers
    chance: Numbers


def find_causes(jobs: JobColumns) -> list[FoundCause]:
    """Return the causes of failures, strongest first; none if chance explains all failures."""
    columns = dict(jobs.attributes)
    for name, mask in jobs.outages.items():
        columns[f"service {name}"] = mask.astype(np.int64)
    sizes = {name: int(codes.max(initial=0)) + 1 for name, codes in columns.items()}
    limit = log(FALSE_ALARM) - log(2 * max(sum(sizes.values()), 1))
    stage_of = np.zeros(int(jobs.submission.max(initial=0)) + 1, np.int64)
    stage_of[jobs.submission] = columns["stage"]
    pairs = {}
    for name, codes in columns.items():
        pairs[name] = _Pairs(codes, sizes[name], jobs.submission, len(stage_of))
    active: Mask = np.ones(len(jobs.failed), np.bool_)
    for attribute_pairs in pairs.values():
        attribute_pairs.add(active, jobs.failed)
    causes: list[FoundCause] = []
    while len(causes) < MOST_CAUSES and jobs.failed[active].any():
        best = _strongest(pairs, stage_of, limit)
        if best is None:
            break
        causes.append(best)
        explained = active & (columns[best.attribute] == best.value)
        active &= ~explained
        for attribute_pairs in pairs.values():
            attribute_pairs.add(explained, jobs.failed, sign=-1)
    return causes


class _Pairs:
    """Jobs and failures by value and submission.

    Each pair that occurs has a number; `of_job` is the number of each job's pair. Jobs are counted
    once, then explained jobs are subtracted: the cost of a round depends on the number of pairs.
    """

    def __init__(self, codes: Codes, values: int, submission: Codes, units: int) -> None:
        keys = codes * units + submission
        if values * units <= _MOST_CELLS:
            pairs, self.of_job = encode_column(keys)
        else:
            pairs, self.of_job = np.unique(keys, return_inverse=True)
        self.values = values
        self.value = pairs // units
        self.unit = pairs % units
        self.jobs = np.zeros(len(pairs))
        self.failed = np.zeros(len(pairs))

    def add(self, chosen: Mask, failed: Mask, *, sign: int = 1) -> None:
        """Count the chosen jobs, or subtract them."""
        self.jobs += sign * np.bincount(self.of_job[chosen], minlength=len(self.jobs))
        self.failed += sign * np.bincount(self.of_job[chosen & failed], minlength=len(self.jobs))

    def parts(self) -> "_Parts":
        """Return the pairs that have jobs."""
        has = self.jobs > 0
        return _Parts(
            self.values, self.value[has], self.unit[has], self.jobs[has], self.failed[has]
        )


@dataclass(frozen=True)
class _Parts:
    """Jobs and failures by value and submission: one entry for each pair that has jobs."""

    values: int
    value: Codes
    unit: Codes
    jobs: Numbers
    failed: Numbers

    def failing_share(self) -> Numbers:
        """Return the share of failed jobs for each value."""
        jobs = np.bincount(self.value, self.jobs, minlength=self.values)
        failed = np.bincount(self.value, self.failed, minlength=self.values)
        return (failed / np.maximum(jobs, 1)).astype(np.float64)


def _strongest(pairs: Mapping[str, _Pairs], stage_of: Codes, limit: float) -> FoundCause | None:
    """Return the cause with the clearest excess, weighted by its share of failed jobs.

    Return None if chance explains every excess. Because of the weight, a host that fails all its
    jobs comes before an outage that fails a third of all jobs and would hide the host.
    """
    best = None
    strength = 0.0
    for name, attribute_pairs in pairs.items():
        parts = attribute_pairs.parts()
        strata = np.zeros_like(stage_of) if name == "stage" else stage_of
        for result in (
            _excess_within_submissions(parts),
            _excess_between_submissions(parts, strata),
        ):
            excess = result.counted - result.expected
            power = np.where(
                (result.chance < limit) & (excess >= LEAST_EXCESS),
                excess / np.sqrt(np.maximum(result.variance, 1.0)),
                0,
            )
            if name.startswith("service "):
                power[0] = 0  # value 0 means no outage
            power = power * parts.failing_share()
            value = int(np.argmax(power))
            if power[value] > strength:
                best = _cause(name, value, parts, result)
                strength = float(power[value])
    return best


def _cause(name: str, value: int, parts: _Parts, result: _Excess) -> FoundCause:
    has = parts.value == value
    jobs = int(parts.jobs[has].sum())
    hit = int(parts.failed[has].sum())
    # Jobs that cannot be compared are expected to fail at the rate of the others.
    expected = float(result.expected[value]) + hit - float(result.counted[value])
    excess = hit - expected
    margin = SIGMAS * sqrt(hit * (1 - hit / jobs) + float(result.variance[value]))
    return FoundCause(
        attribute=name,
        value=value,
        jobs=jobs,
        failed=hit,
        expected=expected,
        low=excess - margin,
        high=min(excess + margin, float(hit)),
        other_jobs=int(parts.jobs.sum()) - jobs,
        other_failed=int(parts.failed.sum()) - hit,
    )


def _sum_by_value(parts: _Parts, figures: Numbers) -> Numbers:
    """Return the sum of the figures of all parts with each value."""
    return np.bincount(parts.value, figures, minlength=parts.values).astype(np.float64)


def _excess_within_submissions(parts: _Parts) -> _Excess:
    """Compare the jobs of each value with the other jobs of the same submissions."""
    jobs = parts.jobs
    failed = parts.failed
    jobs_of_unit = np.bincount(parts.unit, jobs)[parts.unit]
    failed_of_unit = np.bincount(parts.unit, failed)[parts.unit]
    others = jobs_of_unit - jobs
    share = failed_of_unit / jobs_of_unit
    mixed = (others > 0).astype(float)  # a submission with one value has nothing to compare
    spread = jobs * share * (1 - share) * others / np.maximum(jobs_of_unit - 1, 1)
    # Expected from the other jobs alone: the value's own failures would hide part of the excess.
    rate = (failed_of_unit - failed) / np.maximum(others, 1)

    def summed(figures: Numbers) -> Numbers:
        return _sum_by_value(parts, figures * mixed)

    counted = summed(failed)
    chance = _poisson_tails(counted, summed(jobs * share))
    for value in np.flatnonzero((chance < 0) & (counted <= _EXACT)):
        has = (parts.value == value) & (others > 0) & (failed_of_unit > 0)
        chance[value] = _exact_tail(
            int(counted[value]), jobs[has], jobs_of_unit[has], failed_of_unit[has]
        )
    return _Excess(counted, summed(jobs * rate), summed(spread), chance)


def _excess_between_submissions(parts: _Parts, stage_of: Codes) -> _Excess:
    """Compare the submissions of each value with the other submissions of the same stages."""
    jobs = parts.jobs
    failed = parts.failed
    stages = int(stage_of.max(initial=0)) + 1
    stage = stage_of[parts.unit]
    jobs_of_stage = np.bincount(stage, jobs, minlength=stages)
    failed_of_stage = np.bincount(stage, failed, minlength=stages)
    cells, cell = np.unique(parts.value * stages + stage, return_inverse=True)
    jobs_of_cell = np.bincount(cell, jobs)
    failed_of_cell = np.bincount(cell, failed)
    others = jobs_of_stage[cells % stages] - jobs_of_cell
    rate = (failed_of_stage[cells % stages] - failed_of_cell + 0.5) / (others + 1)
    is_known = (others >= LEAST_OTHERS).astype(float)
    usual_rate = rate[cell]
    usable = is_known[cell]
    scatter = _scatter(jobs, failed, (failed_of_stage / np.maximum(jobs_of_stage, 1))[stage])

    def summed(figures: Numbers) -> Numbers:
        return _sum_by_value(parts, figures * usable)

    # Jobs of a submission fail together, so their number varies more than if they were independent.
    variance = summed(jobs * usual_rate * (1 - usual_rate) * (1 + (jobs - 1) * scatter))
    mean_size = float((jobs * jobs).sum() / max(jobs.sum(), 1.0))
    # The usual rates are themselves only known from the other submissions.
    of_rate = (
        jobs_of_cell**2
        * rate
        * (1 - rate)
        * is_known
        * (1 + scatter * mean_size)
        / np.maximum(others, 1)
    )
    variance = variance + np.bincount(cells // stages, of_rate, minlength=parts.values)
    excess = summed(failed - jobs * usual_rate)
    alike = excess / np.sqrt(np.maximum(summed((failed - jobs * usual_rate) ** 2), 1e-9))
    sigma = excess / np.sqrt(np.maximum(variance, 1e-9))
    # The tail of the normal distribution, by its bound exp(-z²/2) / z.
    chance = np.where(
        (alike >= LEAST_ALIKE) & (sigma > _PROMISING),
        -(sigma**2) / 2 - np.log(np.maximum(sigma, 1)),
        0.0,
    )
    return _Excess(summed(failed), summed(jobs * usual_rate), variance, chance)


def _scatter(jobs: Numbers, failed: Numbers, rate: Numbers) -> float:
    """Return the correlation of jobs of a submission by moments; 0 if they fail independently."""
    variance = jobs * rate * (1 - rate)
    pairs = float((variance * (jobs - 1)).sum())
    if not pairs:
        return 0.0
    return max(0.0, float(((failed - jobs * rate) ** 2 - variance).sum()) / pairs)


def _poisson_tails(counted: Numbers, expected: Numbers) -> Numbers:
    """Return the log of the probability of at least the counted failures.

    This is a bound for sums of hypergeometric numbers (Hoeffding).
    """
    tails = np.zeros(len(counted))
    promising = counted - expected > _PROMISING * np.sqrt(np.maximum(expected, 0.1))
    for index in np.flatnonzero(promising):
        tails[index] = _poisson_tail(int(counted[index]), max(float(expected[index]), 1e-12))
    return tails


def _exact_tail(least: int, drawn: Numbers, jobs: Numbers, failed: Numbers) -> float:
    """Return log P(X >= least) for the failures X among `drawn` jobs of each submission.

    In each submission, `failed` of `jobs` fail. If a submission fails on only one host, the bound
    of `_poisson_tails` is far from this probability.
    """
    # Probabilities of 0, 1, … failures; the last item is for `least` or more together.
    below = np.ones(1)
    for drawn_jobs, all_jobs, all_failed in zip(
        drawn.astype(int), jobs.astype(int), failed.astype(int), strict=True
    ):
        least_failed = max(0, drawn_jobs + all_failed - all_jobs)
        most_failed = min(drawn_jobs, all_failed)
        single = np.zeros(most_failed + 1)
        for count in range(least_failed, most_failed + 1):
            # The hypergeometric distribution.
            single[count] = exp(
                _log_choose(all_failed, count)
                + _log_choose(all_jobs - all_failed, drawn_jobs - count)
                - _log_choose(all_jobs, drawn_jobs)
            )
        below = np.convolve(below, single)
        if len(below) > least + 1:
            below = np.append(below[:least], below[least:].sum())
    tail = float(below[least:].sum())
    return min(0.0, log(tail)) if tail > 0 else _LEAST_LOG


def _log_choose(n: int, k: int) -> float:
    return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)


def _poisson_tail(least: int, mean: float) -> float:
    """Return log P(X >= least) for least > mean, by a geometric series from the first term."""
    if least <= mean:
        return 0.0
    first = least * log(mean) - mean - lgamma(least + 1)
    return min(0.0, first - log(1 - min(mean / (least + 1), 1 - exp(-30))))
