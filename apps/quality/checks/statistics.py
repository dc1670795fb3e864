"""Comparison of two histograms in the same bins: chi², its probability, Kolmogorov distance.

Plain Python.
"""

import math
from collections.abc import Sequence
from itertools import accumulate


def chi_square(reference: Sequence[float], observed: Sequence[float]) -> tuple[float, int]:
    """Return chi² for the hypothesis that both have the same shape, and its degrees of freedom.

    The formula is for counts with statistical errors on both sides and different totals: W. H.
    Press et al., Numerical Recipes (3rd ed.), section 14.3.2, eq. 14.3.3; the same as N. D.
    Gagunashvili, arXiv:physics/0605123, eq. 4. Bins that are empty in both do not count. The totals
    cost one degree of freedom.
    """
    total = sum(reference)
    seen = sum(observed)
    if total <= 0 or seen <= 0:
        raise ValueError("a histogram without entries cannot be compared")
    first = math.sqrt(seen / total)
    second = math.sqrt(total / seen)
    bins = []
    for expected, counted in zip(reference, observed, strict=True):
        if expected + counted > 0:
            difference = first * expected - second * counted
            bins.append(difference**2 / (expected + counted))
    return math.fsum(bins), max(0, len(bins) - 1)


def chi_square_probability(chi2: float, freedom: int) -> float:
    """Return the probability of at least this chi² by chance: Q(freedom/2, chi²/2).

    The incomplete gamma function is computed by its recurrence (NIST DLMF 8.8.6), from Q(1/2, x) =
    erfc √x or Q(1, x) = exp -x.
    """
    if freedom <= 0 or chi2 <= 0:
        return 1.0
    x = chi2 / 2
    if freedom % 2:
        start = 0.5
        terms = [math.erfc(math.sqrt(x))]
    else:
        start = 1.0
        terms = [math.exp(-x)]
    for n in range((freedom - 1) // 2):
        a = start + n
        terms.append(math.exp(a * math.log(x) - x - math.lgamma(a + 1)))
    return min(1.0, math.fsum(terms))


def kolmogorov_distance(reference: Sequence[float], observed: Sequence[float]) -> float:
    """Return the largest distance between the two cumulative distributions, from 0 to 1.

    For binned values it is at most the distance for the values themselves: W. T. Eadie et al.,
    Statistical Methods in Experimental Physics, section 11.4.2.
    """
    total = sum(reference)
    seen = sum(observed)
    if total <= 0 or seen <= 0:
        raise ValueError("a histogram without entries cannot be compared")
    pairs = zip(accumulate(reference), accumulate(observed), strict=True)
    distances = [abs(below / total - seen_below / seen) for below, seen_below in pairs]
    return max(distances, default=0.0)
