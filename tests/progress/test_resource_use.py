"""What a job could have requested less of, from what its stage used."""

import pytest

from apps.jobs.models import Job
from apps.progress.domain.resource_use import ENOUGH_JOBS, StageUse, advise, stage_use
from tests.factories import jobs
from tests.factories.history import history
from tests.factories.jobs import record
from tests.factories.requests import draft

GB = 10**9


def job_with(**requested: object) -> Job:
    return Job(**{"cpus": 1, **requested})


def use_of(**used: object) -> StageUse:
    row = {"jobs": 500, "memory_bytes": None, "wall_seconds": None, "cpu_share": None}
    return StageUse(**{**row, **used})


@pytest.mark.parametrize(
    ("requested", "used", "advice"),
    [
        (
            {"requested_memory_bytes": 8 * GB},
            {"memory_bytes": 2.1 * GB},
            "2.6 GB of memory instead of 8 GB",
        ),
        (
            {"time_limit_seconds": 48 * 3600},
            {"wall_seconds": 7 * 3600},
            "9 h 10 min of wall time instead of 2 days",
        ),
        ({"cpus": 8}, {"cpu_share": 0.15}, "2 cores instead of 8"),
        ({"cpus": 2}, {"cpu_share": 0.4}, "1 core instead of 2"),
    ],
)
def test_advises_what_would_do_with_some_spare(requested, used, advice):
    (first,) = advise(job_with(**requested), use_of(**used))
    assert first.request == advice
    assert "500 completed jobs" in first.reason


@pytest.mark.parametrize(
    ("requested", "used"),
    [
        ({"requested_memory_bytes": 8 * GB}, {"memory_bytes": 5 * GB}),
        ({"requested_memory_bytes": 8 * GB}, {}),
        ({}, {"memory_bytes": 2 * GB, "wall_seconds": 60.0, "cpu_share": 0.1}),
        ({"cpus": 4}, {"cpu_share": 0.9}),
        ({"cpus": 0}, {"cpu_share": 0.9}),
        ({"cpus": 8}, {"cpu_share": 0.0}),
        ({"requested_memory_bytes": 100_000_000}, {"memory_bytes": 1_000.0}),
    ],
)
def test_says_nothing_if_little_is_gained_or_known(requested, used):
    assert advise(job_with(**requested), use_of(**used)) == []


def test_a_few_jobs_prove_nothing():
    job = job_with(requested_memory_bytes=8 * GB)
    assert advise(job, use_of(memory_bytes=GB, jobs=ENOUGH_JOBS))
    assert advise(job, use_of(memory_bytes=GB, jobs=ENOUGH_JOBS - 1)) == []
    assert advise(job, None) == []


def test_use_is_that_of_the_stage_of_the_same_request(alps, nova, liaison):
    request = draft(liaison, nova)
    other = draft(liaison, nova)
    jobs.ran(alps, request.key, "Generation", record(1))
    jobs.ran(alps, request.key, "Reco", record(2))
    jobs.ran(alps, other.key, "Generation", record(3))
    history(request, completed_cpu_seconds=300.0, completed_core_seconds=600.0)
    uses = {row.job_id: stage_use(row) for row in Job.objects.all()}
    assert uses["2"] is None
    assert uses["3"] is None
    assert (uses["1"].jobs, uses["1"].cpu_share) == (100, 0.5)


def test_a_stage_without_completed_jobs_has_no_use(alps, nova, liaison):
    request = draft(liaison, nova)
    jobs.ran(alps, request.key, "Generation", record(1))
    history(request, completed=0, memory_bytes_99=None)
    assert stage_use(Job.objects.get()) is None
