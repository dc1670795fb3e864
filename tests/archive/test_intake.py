"""Batches that capture hands over: kept once, in order, and not beyond the limit."""

from datetime import UTC, datetime
from uuid import UUID

import pytest

from apps.archive.domain.intake import IntakeFull, JournalOutdated, accept_batch
from apps.archive.models import IntakeBatch
from capture.wire.batches import pack, unpack
from tests.factories.archive import captured_job

pytestmark = pytest.mark.django_db
JOURNAL, OTHER = UUID(int=1), UUID(int=2)


def accept(*jobs, journal=JOURNAL, sequence=1, **changes):
    values = {
        "cluster": "alps",
        "host": "scheduler-1",
        "journal": journal,
        "sequence": sequence,
        "jobs": len(jobs),
        "size_bytes": sum(job.size_bytes for job in jobs),
        "captured_at": jobs[0].captured_at,
        "data": pack(jobs),
    }
    return accept_batch(**values | changes)


def test_batch_is_kept_as_it_came():
    jobs = [captured_job(1), captured_job(2)]
    assert accept(*jobs, sequence=2)
    batch = IntakeBatch.objects.get()
    assert unpack([batch.data]) == jobs
    assert (batch.cluster, batch.host, batch.journal) == ("alps", "scheduler-1", JOURNAL)
    assert (batch.jobs, batch.size_bytes) == (2, sum(job.size_bytes for job in jobs))
    assert not batch.routed
    assert abs((batch.received_at - datetime.now(UTC)).total_seconds()) < 60


def test_repetition_is_not_kept_and_another_journal_is_another_batch():
    assert accept(captured_job(1))
    assert not accept(captured_job(1))
    assert accept(captured_job(1), journal=OTHER), "a journal that was deleted begins again at 1"
    assert accept(captured_job(2), sequence=2)
    with pytest.raises(JournalOutdated, match="up to job 2"):
        accept(captured_job(3))
    assert IntakeBatch.objects.count() == 3
    IntakeBatch.objects.all().delete()
    assert not accept(captured_job(2), sequence=2), "also when every sink has it"


def test_full_intake_refuses_what_is_new_alone(settings):
    settings.ARCHIVE_INTAKE_MAX_BYTES = 100
    assert accept(captured_job(1))
    with pytest.raises(IntakeFull, match="100 bytes of captured jobs wait"):
        accept(captured_job(2), sequence=2)
    assert not accept(captured_job(1))
