from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from apps.statusboard.domain.states.timeline import Span
from tests.statusboard.overlaps import meeting

START = datetime(2026, 11, 20, tzinfo=UTC)


@settings(max_examples=50, deadline=None)
@given(st.tuples(*[st.integers(0, 6)] * 3), st.none() | st.integers(0, 6))
def test_a_job_meets_an_outage_if_they_share_a_minute(edges, length):
    first, ran, began = edges
    job = range(first, first + ran)
    outage = range(began, 99 if length is None else began + length)
    spans = [
        Span(START + timedelta(minutes=interval.start), START + timedelta(minutes=interval.stop))
        for interval in (job, outage)
    ]
    found = meeting(
        spans[0], Span(spans[1].started_at, None if length is None else spans[1].ended_at)
    )
    shared = set(job or [first]) & set(outage)
    if shared and set(job or [first]) <= set(outage):
        assert found == "contained"
    elif shared:
        assert found == ("containing" if set(outage) <= set(job) else "partial")
    else:
        ends = {job.start, job.stop} & {outage.start, outage.stop} if outage else set()
        assert found == ("touching" if ends else None)
