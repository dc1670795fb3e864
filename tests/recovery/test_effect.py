"""Success beside the control group, and the rule that stops itself."""

from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.recovery.domain.decisions.choice import is_control
from apps.recovery.domain.figures.effect import ArmFigures, RuleEffect, compare_shares
from apps.recovery.domain.rules.useless import LEAST_ENDED, does_not_help, evidence_about


def figures(completed, failed):
    return ArmFigures(jobs=completed + failed, completed=completed, failed=failed)


def test_newcombe_interval_of_the_paper():
    """Newcombe 1998, table II: 56 of 70 beside 48 of 80, method 10: 0.0524 to 0.3339."""
    effect = compare_shares(figures(56, 14), figures(48, 32))
    assert (effect.value, effect.low, effect.high) == pytest.approx((0.2, 0.0524, 0.3339), abs=1e-4)


@given(*[st.integers(0, 400)] * 4)
def test_interval_contains_the_difference(completed, failed, control_completed, control_failed):
    effect = compare_shares(figures(completed, failed), figures(control_completed, control_failed))
    assert -1 <= effect.low <= effect.value <= effect.high <= 1


def test_nothing_is_said_before_enough_controls_have_ended():
    effect = RuleEffect({"acted": figures(90, 10), "control": figures(20, 9)})
    assert effect.difference is None
    assert effect.saved_core_seconds is None
    effect.arms["control"].failed += 1
    assert effect.difference is not None


def test_control_group_has_its_size_and_is_the_same_each_time():
    jobs = [f"NOVA-0001/0/{number}" for number in range(20_000)]
    chosen = [job for job in jobs if is_control(rule_id=1, job_name=job, percent=5)]
    assert 0.045 < len(chosen) / len(jobs) < 0.055
    assert all(is_control(rule_id=1, job_name=job, percent=5) for job in chosen)
    again = [job for job in chosen if is_control(rule_id=2, job_name=job, percent=5)]
    assert len(again) < 0.1 * len(chosen), "the groups of two rules are independent"
    assert not any(is_control(rule_id=1, job_name=job, percent=0) for job in jobs)


@given(ended=st.integers(0, 300), completed=st.integers(0, 300))
def test_rule_stops_only_when_it_is_clear(ended, completed):
    completed = min(completed, ended)
    arm = figures(completed, ended - completed)
    stops = does_not_help(arm, least_success_percent=50)
    if stops:
        assert ended >= LEAST_ENDED
        assert completed < 0.5 * ended
    if ended >= 100 and completed == 0:
        assert stops


MONDAY = date(2026, 11, 23)


def test_two_bad_days_say_nothing_about_a_rule():
    days = [figures(0, 900), figures(1, 40), figures(30, 5), figures(20, 10)]
    by_day = {MONDAY + timedelta(days=number): day for number, day in enumerate(days)}
    usual = evidence_about(by_day, today=MONDAY + timedelta(days=9))
    assert (usual.completed, usual.failed) == (50, 15)


def test_rule_that_acts_on_few_days_is_not_spared_for_a_week():
    by_day = {MONDAY: figures(0, 900)}
    for days, stops in ((5, False), (6, True)):
        evidence = evidence_about(by_day, today=MONDAY + timedelta(days=days))
        assert does_not_help(evidence, least_success_percent=30) is stops
    assert evidence_about({}, today=MONDAY).ended == 0
    by_day |= {
        MONDAY + timedelta(days=1): figures(0, 30),
        MONDAY + timedelta(days=2): figures(3, 1),
    }
    evidence = evidence_about(by_day, today=MONDAY + timedelta(days=9))
    assert (evidence.completed, evidence.failed) == (3, 1), "it helps on other days"
