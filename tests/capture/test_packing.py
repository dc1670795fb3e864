"""Jobs in packed pieces."""

import base64
from datetime import UTC, datetime

import pytest
from zstandard import ZstdDecompressor

from capture.wire import batches
from capture.wire.batches import BadBatch, pack, unpack, unpack_untrusted
from capture.wire.report import CaptureReport
from tests.archive.spool_writer import environment_bytes
from tests.factories.archive import captured_job

#: What capture of 0.2.0 packed of the jobs below.
PACKED_BY_020 = base64.b64decode(
    "KLUv/WCHAOUFAJJKJSQwbasDMCZZtAauNQBJf/J/ls9TPUTACIEZOsTrgZnhYUBDIhIDaeEeLDwYHFJKCkUBRMyuFUgvsD1L"
    "gIAyaRo6aRglUNpQE62vzRMeCAoN57fQYRzR++KU0UJXZrFwGBQ4GGpdrsNYyvaeuXB7Xs9QX2fN+YvTtZuMIVBf35Hbr0eW"
    "PR10ycN6PxGIq1qHkdaRJS4JDQBAFhKKfMJmuMik68sEUtN/8lYv1OJw2aSyAaj2o5Jyu2YZ"
)
AT = datetime(2026, 11, 26, 12, tzinfo=UTC)
FACTS = {
    "submitted_at": AT,
    "captured_at": AT,
    "environment": environment_bytes([("USER", "ana")]),
}
JOBS_OF_020 = [
    captured_job(17, script=b"#!/bin/sh\nsleep 1\n", user="ana", masked_names=("TOKEN",), **FACTS),
    captured_job(18, script=b"#!/bin/sh\nsleep 2\n", **FACTS),
]


def test_several_pieces_give_their_jobs_in_order():
    batches_of_jobs = [captured_job(1), captured_job(2)], [captured_job(3)]
    assert unpack(map(pack, batches_of_jobs)) == [*batches_of_jobs[0], *batches_of_jobs[1]]


def test_portal_reads_what_capture_of_the_release_before_sends():
    assert unpack_untrusted(PACKED_BY_020) == JOBS_OF_020


def test_portal_of_the_release_before_reads_what_capture_sends():
    """It ignores keys that it does not know, but none is sent without a need."""
    assert _decompress(pack(JOBS_OF_020)) == _decompress(PACKED_BY_020)


def _decompress(batch):
    return ZstdDecompressor().decompress(batch)


def test_batch_of_another_version_is_refused_with_both_numbers(monkeypatch):
    batch = pack(JOBS_OF_020)
    monkeypatch.setattr(batches, "VERSION", 2)
    with pytest.raises(BadBatch, match="it is of version 1, this portal reads version 2"):
        unpack_untrusted(batch)


def test_report_of_another_release_is_read_as_far_as_it_is_known():
    report = CaptureReport.from_detail({"captured": 3, "unknown_to_this_release": [1]})
    assert (report.captured, report.missed) == (3, 0)
