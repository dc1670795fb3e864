"""What jobs took is counted for estimates: each figure as a recount has it, again when jobs change,
else not.
"""

from datetime import timedelta
from statistics import median

import pytest

from apps.clusters.schedulers.base import JobState
from apps.production.models import StageHistory
from apps.progress.domain import stage_history
from tests.factories import jobs
from tests.factories.jobs import AT, record
from tests.factories.requests import draft


@pytest.fixture
def request_(nova, liaison):
    return draft(liaison, nova)


CPU_SECONDS = 90.5


def run(cluster, request, stage="Generation", *, first=1, walls=(100, 200, 300), **more) -> None:
    """Store jobs of these wall times, of this stage of the request."""
    records = [
        record(
            first + n,
            started_at=AT - timedelta(seconds=wall),
            ended_at=AT,
            wall_seconds=wall,
            cpus=2,
            cpu_seconds=CPU_SECONDS,
            **more,
        )
        for n, wall in enumerate(walls)
    ]
    jobs.ran(cluster, request.key, stage, *records)


def test_counts_what_the_jobs_of_a_stage_took(alps, request_):
    run(alps, request_, walls=(100, 200, 300, 400, 500))
    run(alps, request_, first=50, walls=(1000,), state=JobState.FAILED, exit_code=1)
    assert stage_history.count_changed(at=AT) == 1
    (row,) = StageHistory.objects.all()
    assert (row.name, row.release, row.configuration) == ("generation", "v09_72", "generation.fcl")
    assert (row.attempts, row.completed, row.events_per_job) == (6, 5, 5000.0)
    assert (row.core_seconds, row.completed_wall_seconds) == (5000.0, 1500.0)
    assert (row.completed_core_seconds, row.completed_cpu_seconds) == (3000.0, 5 * CPU_SECONDS)
    assert row.wall_seconds == [140.0, 200.0, 300.0, 400.0, 460.0]
    assert row.wall_seconds[2] == median([100, 200, 300, 400, 500])
    assert row.wall_seconds_99 == pytest.approx(496)  # between 400 and 500
    # All five in less than an hour: at that pace 120 in a day.
    assert row.per_day == [120.0] * 5
    assert row.last_completed_at == AT


def test_counts_again_only_what_has_changed(alps, request_):
    run(alps, request_)
    assert [stage_history.count_changed(at=AT) for _ in range(2)] == [1, 0]
    run(alps, request_, first=10)
    assert [stage_history.count_changed(at=AT) for _ in range(2)] == [1, 0]
    assert StageHistory.objects.get().completed == 6


def test_a_stage_that_only_jobs_name_has_no_release(alps, request_):
    run(alps, request_, stage="debug")
    stage_history.count_changed(at=AT)
    row = StageHistory.objects.get()
    assert (row.name, row.release, row.events_per_job) == ("debug", "", None)


def test_failed_jobs_alone_have_no_quantiles(alps, request_):
    run(alps, request_, state=JobState.FAILED, exit_code=1)
    stage_history.count_changed(at=AT)
    row = StageHistory.objects.get()
    assert (row.completed, row.wall_seconds, row.per_day) == (0, [], [])
    assert (row.wall_seconds_99, row.memory_bytes_99, row.last_completed_at) == (None, None, None)


def test_jobs_that_claim_a_request_of_others_do_not_count(alps, request_, dune):
    run(alps, request_, account="dune")
    assert stage_history.count_changed(at=AT) == 0


def test_queries_do_not_grow_with_what_has_not_changed(
    alps, nova, liaison, django_assert_num_queries
):
    for n in range(3):
        run(alps, draft(liaison, nova), first=100 * (n + 1))
    stage_history.count_changed(at=AT)
    with django_assert_num_queries(3):
        stage_history.count_changed(at=AT)
