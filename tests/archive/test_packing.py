"""Captured jobs in one piece, as journal and sinks get them."""

from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from apps.archive.capture.entry import CapturedJob
from apps.archive.capture.packing import PackedJobs, pack, pieces_of, unpack

from .conftest import START, captured_job

texts = st.text(st.characters(), max_size=8)  # lone surrogates too: names in a spool may be of any bytes
moments = st.integers(-(10**9), 10**15).map(lambda count: START + timedelta(microseconds=count))
jobs = st.builds(
    CapturedJob,
    **dict.fromkeys(("cluster", "scheduler", "job_id", "request_key", "stage", "arguments", "user", "caveat"), texts),
    **dict.fromkeys(("script", "environment", "description"), st.binary(max_size=20)),
    **dict.fromkeys(("submitted_at", "captured_at"), moments),
    masked_names=st.lists(texts, max_size=2).map(tuple),
)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(jobs, max_size=4), max_size=3))
def test_jobs_come_out_as_they_went_in(batches):
    assert unpack([pack(batch) for batch in batches]) == [job for batch in batches for job in batch]


def test_packed_jobs_are_handed_on_as_they_are_and_show_each_job():
    batches = [[captured_job(1), captured_job(2)], [captured_job(3)]]
    packed = PackedJobs([pack(batch) for batch in batches], 3)

    assert pieces_of(packed) is packed.pieces
    assert [*packed] == [*batches[0], *batches[1]] == unpack(pieces_of([*packed]))
    assert (len(packed), packed[-1], packed[:1]) == (3, captured_job(3), [captured_job(1)])
