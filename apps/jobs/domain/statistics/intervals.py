"""Confidence intervals of rates, and of ratios of rates."""

from math import exp, sqrt
from typing import NamedTuple

# The quantile for 95 %.
_Z = 1.959964


def wilson_interval(part: int, whole: int) -> tuple[float, float]:
    """Return the 95 % Wilson score interval of a rate; (0, 1) if `whole` is 0."""
    if not whole:
        return 0.0, 1.0
    rate = part / whole
    square = _Z * _Z
    middle = (rate + square / (2 * whole)) / (1 + square / whole)
    half = (
        _Z * sqrt(rate * (1 - rate) / whole + square / (4 * whole * whole)) / (1 + square / whole)
    )
    low = 0.0 if part == 0 else max(middle - half, 0.0)
    return low, 1.0 if part == whole else min(middle + half, 1.0)


class RateRatio(NamedTuple):
    """The ratio of two rates with its 95 % interval."""

    ratio: float
    low: float
    high: float


def compare_rates(inside: int, group: int, outside: int, everything: int) -> RateRatio:
    """Return the ratio of `inside/group` to `outside/everything`; the interval is that of Katz."""
    ratio = (inside / group) / (outside / everything)
    error = sqrt(max(0.0, 1 / inside - 1 / group + 1 / outside - 1 / everything))
    return RateRatio(ratio, ratio * exp(-1.96 * error), ratio * exp(1.96 * error))
