from datetime import timedelta
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from apps.statusboard.domain.states.timeline import (
    BEGINNING,
    Claim,
    Span,
    add_heartbeat,
    build,
    clip,
    subtract,
)
from apps.statusboard.enums import Cause, State, worst

SECONDS = 30


def at(second):
    return None if second is None else BEGINNING + timedelta(seconds=second)


@st.composite
def spans(draw, open_ended=True):
    start = draw(st.integers(0, SECONDS - 1))
    end = draw(
        st.integers(start, SECONDS) | st.none() if open_ended else st.integers(start + 1, SECONDS)
    )
    return Span(at(start), at(end))


@st.composite
def claims(draw):
    span = draw(spans())
    state = draw(st.sampled_from(State))
    return Claim(
        span.started_at, span.ended_at, state, draw(st.sampled_from(Cause)), draw(st.integers(1, 9))
    )


def covers(span, second):
    return span.started_at <= at(second) and (span.ended_at is None or span.ended_at > at(second))


def by_second(found, of=lambda claim: claim.state):
    """What each second is report to be; more or less than one claim on it is an error."""
    told = []
    for second in range(SECONDS):
        [claim] = [claim for claim in found if covers(claim, second)]
        told.append(of(claim))
    return told


def brute(given):
    order = [State.MAINTENANCE, State.DOWN, State.DEGRADED, State.UNKNOWN, State.UP]
    told = []
    for second in range(SECONDS):
        states = {claim.state for claim in given if covers(claim, second)}
        told.append(next((state for state in order if state in states), State.UNKNOWN))
    return told


@given(st.lists(claims(), max_size=12))
def test_timeline_equals_a_recount_of_every_second(given):
    assert by_second(build(given, Cause.NOT_MONITORED)) == brute(given)


@given(st.lists(claims(), max_size=12))
def test_timeline_is_ordered_without_gap_and_neighbours_differ(given):
    timeline = build(given, Cause.NOT_MONITORED)
    assert timeline[0].started_at == BEGINNING
    assert timeline[-1].ended_at is None
    for one, other in pairwise(timeline):
        assert one.ended_at == other.started_at
        assert one.started_at < one.ended_at
        assert one.state != other.state


@given(
    st.lists(claims(), max_size=8).flatmap(
        lambda given: st.tuples(st.just(given), st.permutations(given))
    )
)
def test_timeline_does_not_depend_on_the_order_of_its_inputs(pair):
    given, shuffled = pair
    assert build(given, Cause.NOT_MONITORED) == build(shuffled, Cause.NOT_MONITORED)


@given(st.lists(claims(), max_size=8), st.integers(0, SECONDS - 1))
def test_timeline_from_a_later_moment_is_the_rest_of_the_whole(given, second):
    whole = [
        (c.started_at, c.state)
        for c in build(given, Cause.NOT_MONITORED)
        if c.started_at > at(second)
    ]
    rest = [(c.started_at, c.state) for c in build(given, Cause.NOT_MONITORED, at(second))]
    assert rest[1:] == whole


def test_timeline_in_a_planned_window_is_maintenance_even_when_down():
    down = Claim(at(5), at(25), State.DOWN, Cause.INCIDENT, 1)
    window = Claim(at(10), at(20), State.MAINTENANCE, Cause.WINDOW, 2)
    assert [(c.state, c.ref) for c in build([down, window], Cause.NOT_MONITORED)] == [
        ("unknown", None),
        ("down", 1),
        ("maintenance", 2),
        ("down", 1),
        ("unknown", None),
    ]


@given(spans(), st.lists(spans(), max_size=6))
def test_subtract_leaves_every_second_outside_the_holes(span, holes):
    left = subtract(span, holes)
    for second in range(SECONDS):
        inside = covers(span, second) and not any(covers(hole, second) for hole in holes)
        assert sum(covers(piece, second) for piece in left) == inside


@given(st.lists(spans(open_ended=False), max_size=6))
def test_signs_of_life_in_any_order_cover_what_they_cover_together(signs):
    gaps, covered_until = [], at(0)
    for sign in signs:
        gaps, covered_until = add_heartbeat(gaps, covered_until, sign)
    for second in range(SECONDS):
        heard = at(second) < covered_until and not any(covers(silence, second) for silence in gaps)
        assert heard == any(covers(sign, second) for sign in signs)


@given(spans(), spans(open_ended=False))
def test_clip_keeps_the_seconds_of_both(span, within):
    part = clip(span, within)
    for second in range(SECONDS):
        assert (part is not None and covers(part, second)) == (
            covers(span, second) and covers(within, second)
        )


def test_clip_to_a_moment_is_half_open():
    moment = Span(at(5), at(5))
    assert clip(Span(at(5), at(6)), moment) == moment
    assert clip(Span(at(4), at(5)), moment) is None
    assert clip(Span(at(6), None), moment) is None


def test_worst_of_unknown_and_up_is_unknown():
    assert worst(["up", "unknown"]) == "unknown"
    assert worst(["unknown", "maintenance", "degraded", "down"]) == "down"
    assert worst([]) == "unknown"
