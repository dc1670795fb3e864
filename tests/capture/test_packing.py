"""Jobs in packed pieces."""

from capture.wire.batches import pack, unpack
from tests.factories.archive import captured_job


def test_several_pieces_give_their_jobs_in_order():
    batches = [captured_job(1), captured_job(2)], [captured_job(3)]
    assert unpack(map(pack, batches)) == [*batches[0], *batches[1]]
