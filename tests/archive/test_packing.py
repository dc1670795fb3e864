"""Captured jobs in one piece, as journal and sinks get them."""

from apps.archive.wire.batches import PackedJobs, pack, pieces_of, unpack
from tests.factories.archive import captured_job


def test_packed_jobs_are_handed_on_as_they_are_and_show_each_job():
    batches = [[captured_job(1), captured_job(2)], [captured_job(3)]]
    packed = PackedJobs([pack(batch) for batch in batches], 3)

    assert pieces_of(packed) is packed.pieces
    assert [*packed] == [*batches[0], *batches[1]] == unpack(pieces_of([*packed]))
    assert (len(packed), packed[-1], packed[:1]) == (3, captured_job(3), [captured_job(1)])
