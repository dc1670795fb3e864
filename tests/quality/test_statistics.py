"""The formulas against published values and against what must hold for any histograms."""

import math

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from apps.quality.checks import Histogram
from apps.quality.checks.statistics import chi_square, chi_square_probability, kolmogorov_distance
from apps.quality.domain.posts import histogram_problems


@pytest.mark.parametrize(
    ("chi2", "freedom", "probability"),
    [
        # Critical values of M. Abramowitz and I. Stegun, Handbook of Mathematical Functions, table
        # 26.8.
        (3.841458820694124, 1, 0.05),
        (6.634896601021217, 1, 0.01),
        (18.307038053275146, 10, 0.05),
        (29.58829844507442, 10, 0.001),
        (124.34211340400407, 100, 0.05),
        (2.0, 2, math.exp(-1)),
        (0.0, 5, 1.0),
        (5.0, 0, 1.0),
    ],
)
def test_probability_of_chi_square(chi2, freedom, probability):
    assert chi_square_probability(chi2, freedom) == pytest.approx(probability, rel=1e-9)


def test_chi_square_of_two_bins_by_hand():
    """For totals of 40 and 20: ((√½·10 − √2·10)² / 20) + ((√½·30 − √2·10)² / 40) = 2.5 + 1.25."""
    assert chi_square((10, 30), (10, 10)) == (pytest.approx(3.75), 1)


def test_kolmogorov_distance_by_hand():
    assert kolmogorov_distance((10, 30), (10, 10)) == pytest.approx(0.25)
    assert kolmogorov_distance((1, 0), (0, 1)) == 1


def test_bins_empty_in_both_do_not_count():
    assert chi_square((5, 0, 7), (5, 0, 7)) == (0, 1)


@pytest.mark.parametrize("pair", [((0, 0), (1, 2)), ((1, 2), (0, 0))])
def test_nothing_cannot_be_compared(pair):
    for compare in (chi_square, kolmogorov_distance):
        with pytest.raises(ValueError, match="without entries"):
            compare(*pair)


BINS = st.lists(st.tuples(st.floats(0, 1e9), st.floats(0, 1e9)), min_size=1, max_size=30)


@settings(max_examples=100, deadline=None)
@given(bins=BINS, factor=st.floats(0.5, 20))
def test_what_holds_for_all_histograms(bins, factor):
    reference, observed = [r for r, _ in bins], [o for _, o in bins]
    assume(sum(reference) > 1e-3 and sum(observed) > 1e-3)
    chi2, freedom = chi_square(reference, observed)
    distance = kolmogorov_distance(reference, observed)
    assert 0 <= chi_square_probability(chi2, freedom) <= 1 + 1e-9
    assert 0 <= distance <= 1 + 1e-9
    assert chi_square(observed, reference)[0] == pytest.approx(chi2, rel=1e-6, abs=1e-6)
    scaled = [factor * o for o in observed]
    assert kolmogorov_distance(reference, scaled) == pytest.approx(distance, abs=1e-9)
    same = [factor * r for r in reference]
    assert chi_square(reference, same)[0] == pytest.approx(0, abs=1e-3)


@pytest.mark.parametrize(
    ("edges", "reference", "observed", "wrong"),
    [
        ([0, 1, 2], [1, 2], [3, 4], []),
        ([0], [], [], ["edges"]),
        ([0, 0], [1], [1], ["edges"]),
        ([1, 0], [1], [1], ["edges"]),
        ([0, 1], [1, 2], [1], ["reference"]),
        ([0, 1], [-1], [1], ["reference"]),
        ([0, 1], [1], [math.nan], ["observed"]),
        ([0, math.inf], [1], [1], ["edges"]),
        ([0, 1], [True], ["1"], ["reference", "observed"]),
        (list(range(1002)), [1] * 1001, [1] * 1001, ["edges"]),
    ],
)
def test_schema_of_histograms(edges, reference, observed, wrong):
    posted = Histogram(name="pt", edges=edges, reference=reference, observed=observed)
    assert sorted(histogram_problems(posted)) == sorted(wrong)
