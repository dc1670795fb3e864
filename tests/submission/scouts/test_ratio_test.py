"""The test of a stage: how often it errs, and how soon it decides."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.submission.domain.arrays.scouts import HIGHEST_USUAL, LOWEST_USUAL, usual_rate
from apps.submission.domain.scouts.ratio_test import RatioFinding, RatioTest

RATES = st.floats(LOWEST_USUAL, HIGHEST_USUAL)


def ratio_test(usual: float = 0.05, jobs: int = 1_000) -> RatioTest:
    return RatioTest(usual=usual, jobs=jobs, false_stop=0.001, missed=0.05)


def test_stage_whose_first_jobs_all_fail_is_broken_after_six():
    assert ratio_test().find([True] * 5) is RatioFinding.UNCLEAR
    assert ratio_test().find([True] * 6) is RatioFinding.BROKEN


def test_stage_whose_first_jobs_complete_is_sound_after_five():
    assert ratio_test().find([False] * 4) is RatioFinding.UNCLEAR
    assert ratio_test().find([False] * 5) is RatioFinding.SOUND


def test_stage_that_breaks_after_a_thousand_good_jobs_is_found_as_soon():
    good = [False] * 1_000
    assert ratio_test().find(good + [True] * 5) is not RatioFinding.BROKEN
    assert ratio_test().find(good + [True] * 6) is RatioFinding.BROKEN


def test_failures_that_end_before_the_jobs_beside_them_are_no_break():
    """One in ten of these jobs fails at once; the others still run."""
    running = ([True] + [None] * 9) * 20
    assert ratio_test().find(running) is RatioFinding.UNCLEAR


@given(RATES, st.lists(st.booleans(), max_size=60), st.data())
def test_what_is_broken_before_all_jobs_ended_is_broken_in_the_end(usual, failures, data):
    ended = data.draw(st.lists(st.booleans(), min_size=len(failures), max_size=len(failures)))
    so_far = [
        failed if has_ended else None for failed, has_ended in zip(failures, ended, strict=True)
    ]
    if ratio_test(usual).find(so_far) is RatioFinding.BROKEN:
        assert ratio_test(usual).find(failures) is RatioFinding.BROKEN


@given(RATES, st.integers(1, 10**6))
def test_more_jobs_need_more_evidence(usual, jobs):
    assert ratio_test(usual, jobs + 1).broken_at > ratio_test(usual, jobs).broken_at


@pytest.mark.parametrize("usual", [0.01, 0.05, 0.2, 0.5])
def test_stage_that_fails_at_its_usual_rate_is_hardly_ever_stopped(usual):
    """One in ten may be stopped here; of 500 stages, 75 would be five standard deviations more."""
    chance = random.Random(7)
    test = RatioTest(usual=usual, jobs=300, false_stop=0.1, missed=0.05)
    stopped = 0
    for _ in range(500):
        failures = [chance.random() < usual for _ in range(300)]
        stopped += test.find(failures) is RatioFinding.BROKEN
    assert stopped <= 75


@pytest.mark.parametrize(
    ("attempts", "completed", "rate"),
    [(0, 0, 0.2), (19, 0, 0.2), (1_000, 1_000, 0.01), (200, 190, 0.09), (1_000, 0, 0.5)],
)
def test_usual_rate_is_the_most_that_past_jobs_allow_within_bounds(attempts, completed, rate):
    assert usual_rate(attempts=attempts, completed=completed) == pytest.approx(rate, abs=0.005)
