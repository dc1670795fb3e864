"""The words of kept logs are indexed by a worker, after the harvest."""

import pytest

from apps.diagnosis.domain.verdicts.harvest import harvest_batch, queue_harvests
from apps.search.domain.indexing import new_logs
from apps.search.domain.indexing.new_logs import index_waiting, logs_waiting, queue_words
from apps.search.models import LogToIndex, LogWords

pytestmark = pytest.mark.django_db


def test_harvested_log_is_indexed_by_a_worker(make_job, at) -> None:
    row = make_job(1, stage="reco", log="flux capacitor\n")
    queue_harvests(job_pks=[row.pk], at=at)
    harvest_batch(at=at)
    assert logs_waiting(at_most=10) == 1
    assert not LogWords.objects.exists()

    assert index_waiting(seconds=1, at=at) == 1
    assert "'capacitor'" in LogWords.objects.get(job=row).words
    assert logs_waiting(at_most=10) == 0
    assert index_waiting(seconds=1, at=at) == 0


def test_log_that_is_read_again_meanwhile_stays_queued(make_job, at, monkeypatch) -> None:
    row = make_job(1, stage="reco", log="flux capacitor\n")
    queue_words([row.pk], at=at)
    claim = new_logs.LOGS_TO_INDEX.claim

    def claim_and_queue_again(rows, *, at):
        claimed = claim(rows, at=at)
        queue_words([log.job_id for log in claimed], at=at)
        return claimed

    with monkeypatch.context() as context:
        context.setattr(
            type(new_logs.LOGS_TO_INDEX),
            "claim",
            lambda _, rows, *, at: claim_and_queue_again(rows, at=at),
        )
        index_waiting(seconds=0, at=at)
    assert logs_waiting(at_most=10) == 1


def test_log_that_kills_its_workers_is_left_out(at, make_job) -> None:
    row = make_job(1, stage="reco", log="flux capacitor\n")
    queue_words([row.pk], at=at)
    LogToIndex.objects.update(attempts=new_logs.MOST_ATTEMPTS)
    index_waiting(seconds=1, at=at)
    assert logs_waiting(at_most=10) == 0
