"""The formula: bounds, monotony in each fact, and that waiting wins in the end."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.production.domain.priority.score import (
    ScoreFacts,
    manual_term,
    score_terms,
    sort_key,
    total_score,
    waiting_term,
)
from apps.production.enums import RequestedPriority

TODAY = date(2026, 11, 20)
AT = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
LEVELS = list(RequestedPriority.values)
PART = st.floats(0, 1)
FACTS = st.builds(
    ScoreFacts,
    priority_class=st.sampled_from(["", *LEVELS]),
    number=st.none() | st.integers(1, 9),
    requested_priority=st.sampled_from(LEVELS),
    deadline=st.none() | st.dates(date(2025, 1, 1), date(2030, 1, 1)),
    takes_days=st.none() | st.floats(0, 400),
    core_seconds=st.none() | st.floats(0, 1e13),
    size_basis=st.just("past jobs"),
    experiment_name=st.just("NOvA"),
    share=PART,
    used=st.none() | PART,
    used_days=st.just(30),
)
FEW = settings(max_examples=60, deadline=None)


def points(facts: ScoreFacts) -> float:
    return total_score(score_terms(facts, today=TODAY))


#: All terms but waiting lie within these.
LEAST, MOST = 0 - 16 - 5 + 0 + 0 - 30, 160 + 16 + 10 + 40 + 15 + 30


@FEW
@given(FACTS)
def test_each_term_is_told_and_their_sum_has_bounds(facts):
    terms = score_terms(facts, today=TODAY)
    assert [term.key for term in terms] == ["class", "number", "asked", "deadline", "size", "share"]
    assert all(term.title and term.why for term in terms)
    assert LEAST <= total_score(terms) <= MOST


@FEW
@given(FACTS, FACTS)
def test_score_is_monotone_in_each_fact(one, other):
    """Whatever else holds: what is more urgent, nearer,
    smaller or less served never has fewer points.
    """
    for name, value in (
        ("priority_class", lambda f: LEVELS.index(f.priority_class or "normal")),
        ("number", lambda f: f.number or 5),
        ("requested_priority", lambda f: LEVELS.index(f.requested_priority)),
        ("deadline", lambda f: -(f.deadline or date(2040, 1, 1)).toordinal()),
        ("takes_days", lambda f: f.takes_days or 0),
        ("share", lambda f: f.share),
        ("used", lambda f: -f.used if f.used is not None else None),
        ("core_seconds", lambda f: -f.core_seconds if f.core_seconds is not None else None),
    ):
        changed = replace(one, **{name: getattr(other, name)})
        before, after = value(one), value(changed)
        if None not in (before, after) and before <= after:
            assert points(one) <= points(changed) + 1e-9, name


@FEW
@given(FACTS, FACTS, st.floats(0, 100))
def test_whoever_waits_long_enough_comes_first(old, new, days):
    """No newcomer, whatever it is, passes one that has waited for as long as all other terms are
    worth.
    """
    long_ago = AT - timedelta(days=(MOST - LEAST) / 2 + 1 + days)
    assert sort_key(points(old), long_ago) > sort_key(points(new), AT)


@FEW
@given(FACTS, FACTS, st.integers(0, 500), st.integers(0, 500))
def test_key_orders_as_the_scores_do_at_any_moment(one, other, days_one, days_other):
    sent = [AT - timedelta(days=days) for days in (days_one, days_other)]
    for at in (AT, AT + timedelta(days=77)):
        scores = [
            points(f) + waiting_term(s, at).points for f, s in zip((one, other), sent, strict=True)
        ]
        keys = [sort_key(points(f), s) for f, s in zip((one, other), sent, strict=True)]
        if abs(scores[0] - scores[1]) > 1e-5:
            assert (scores[0] > scores[1]) == (keys[0] > keys[1])


@pytest.mark.parametrize(
    ("changes", "key", "title", "expected", "said"),
    [
        ({}, "class", "Class: not set", 40, "until set"),
        ({"priority_class": "urgent"}, "class", "Class: urgent", 160, "OPG"),
        ({"number": 7}, "number", "Number: 7", 8, "4 points"),
        (
            {"deadline": TODAY + timedelta(days=22)},
            "deadline",
            "Deadline in 22 d",
            18,
            "is unknown",
        ),
        (
            {"deadline": TODAY + timedelta(days=22), "takes_days": 4.0},
            "deadline",
            "Deadline in 22 d",
            22,
            "4.0 days",
        ),
        (
            {"deadline": TODAY - timedelta(days=3)},
            "deadline",
            "Deadline 3 d ago",
            40,
            "3.0 days short",
        ),
        (
            {"core_seconds": 3.6e8, "size_basis": "9 past jobs"},
            "size",
            "Size: 100,000 core-hours",
            3.75,
            "9 past jobs",
        ),
        ({}, "size", "Size unknown", 0, "No past jobs"),
        (
            {"share": 0.5, "used": 0.25, "used_days": 30},
            "share",
            "Share",
            15,
            "25 % of the core-hours",
        ),
        ({"share": 0.5, "used": 1.0}, "share", "Share", -15, "its share is 50 %"),
        ({"share": 0.0, "used": 0.0}, "share", "Share", 0, "0 %"),
        ({"share": 0.5}, "share", "Share", 0, "No recent jobs"),
    ],
)
def test_terms_say_how_they_came_about(changes, key, title, expected, said):
    term = next(term for term in score_terms(ScoreFacts(**changes), today=TODAY) if term.key == key)
    assert (term.title, term.points) == (title, expected)
    assert said in term.why


def test_waiting_and_hand_are_told():
    assert waiting_term(AT - timedelta(days=3), AT).points == 6
    assert manual_term(4.0, by="opg-one", reason="freeze").why == "By opg-one: “freeze”"
