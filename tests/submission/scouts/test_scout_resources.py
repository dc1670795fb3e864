"""Completed scouts set memory and wall time of the jobs after them."""

from datetime import timedelta

import pytest
from django.urls import reverse
from hypothesis import given
from hypothesis import strategies as st

from apps.clusters.schedulers.base import JobState
from apps.core.models import Event
from apps.jobs.models import Job
from apps.production.models import Stage
from apps.submission.domain.arrays.assignment import choose_cluster
from apps.submission.domain.arrays.scout_resources import (
    ScoutUse,
    fit_memory,
    fit_wall_time,
    signed_bound,
)
from apps.submission.domain.dispatch import dispatch
from apps.submission.models import StageScouts
from tests.factories.requests import AT, stage
from tests.factories.submissions import retry_failed
from tests.factories.verdicts import verdict
from tests.pages import page_of
from tests.submission.scouts.test_scouts import earlier_jobs, step

HOUR = timedelta(hours=1)
GB = 10**9
MIB = 2**20
JOBS = 200


@pytest.fixture
def running(make, cluster, approver):
    cluster.submission |= {"array_size": 100, "most_in_flight": 1_000}
    cluster.save()
    earlier_jobs(make("draft"), attempts=1_000, completed=962)
    measured_stage = stage(
        "one", jobs=JOBS, events=2_000, memory_bytes=8 * GB, wall_seconds=8 * 3600
    )
    request = make("running", stages=(measured_stage,))
    return choose_cluster(request=request, cluster=cluster, by=approver, at=AT)


def asked_by(submission):
    return (submission.asked["memory_bytes"], submission.asked["time_limit_seconds"])


def test_other_jobs_get_what_the_scouts_used_with_a_margin(running, end_jobs):
    first = step(running)
    assert asked_by(first) == (8 * GB, 8 * 3600)
    end_jobs(first)
    second = step(running, AT + HOUR)
    memory_bytes, wall_seconds = asked_by(second)
    assert 2.5 * GB <= memory_bytes < 2.5 * GB + MIB, "1.25 times 2 GB"
    assert wall_seconds == 48 * 60, "at least a tenth of what was asked for"
    assert second.changes == {"memory_bytes": memory_bytes, "time_limit_seconds": wall_seconds}
    assert asked_by(step(running, AT + HOUR)) == (memory_bytes, wall_seconds)

    row = StageScouts.objects.get()
    assert (row.asked_memory_bytes, row.measured_memory_bytes) == (8 * GB, 2 * GB)
    assert (row.asked_wall_seconds, row.measured_wall_seconds) == (8 * 3600, 1800)
    assert (row.measured_jobs, row.measured_at) == (10, AT + HOUR)
    [event] = Event.objects.filter(kind="submission.resources_set")
    assert (event.old, event.new) == ("8 GB, 8 h", "2.5 GB, 48 min")
    assert (
        event.reason == "10 completed scouts were measured; the 95th percentile is 2 GB and 30 min."
    )


def test_time_limit_stays_until_all_scouts_have_ended(running, end_jobs):
    first = step(running)
    end_jobs(first, tasks=range(5))
    second = step(running, AT + HOUR)
    assert second.asked["memory_bytes"] < 3 * GB
    assert second.asked["time_limit_seconds"] == 8 * 3600

    end_jobs(first, tasks=range(5, 10))
    Job.objects.filter(job_id=f"{first.spool_id}_9").update(max_memory_bytes=4 * GB)
    memory_bytes, wall_seconds = asked_by(step(running, AT + 2 * HOUR))
    assert 5 * GB <= memory_bytes < 5 * GB + MIB
    assert wall_seconds == 48 * 60
    assert Event.objects.filter(kind="submission.resources_set").count() == 2


@pytest.mark.parametrize(
    ("signed", "limit", "expected"),
    [(None, None, 8 * GB), (9 * GB, None, 9 * GB), (20 * GB, 9 * GB, 9 * GB)],
)
def test_more_than_asked_is_set_within_the_signed_bound_and_the_cluster(
    running, end_jobs, cluster, signed, limit, expected
):
    Stage.objects.update(retry_memory_bytes=signed)
    cluster.max_memory_bytes = limit
    cluster.save()
    first = step(running)
    end_jobs(first)
    Job.objects.filter(spool_id=first.spool_id).update(max_memory_bytes=7_900_000_000)
    assert step(running, AT + HOUR).asked["memory_bytes"] == expected


def test_limits_of_another_cluster_hold_after_the_measurement(running, end_jobs, cluster):
    end_jobs(step(running))
    step(running, AT + HOUR)
    cluster.max_memory_bytes = 2 * GB
    cluster.max_wall_seconds = 1800
    cluster.save()
    running.cluster = cluster
    assert asked_by(step(running, AT + HOUR)) == (2 * GB, 1800)


def test_cluster_can_switch_it_off(running, end_jobs, cluster):
    cluster.submission |= {"scouts_measure": False}
    cluster.save()
    end_jobs(step(running))
    assert asked_by(step(running, AT + HOUR)) == (8 * GB, 8 * 3600)
    assert StageScouts.objects.get().measured_jobs == 0


def test_killed_scouts_keep_their_limit(running, end_jobs):
    first = step(running)
    jobs = end_jobs(first, failed=[9], state="out_of_memory")
    verdict(next(job for job in jobs if job.state == JobState.OUT_OF_MEMORY), "code", at=AT)
    memory_bytes, wall_seconds = asked_by(step(running, AT + HOUR))
    assert (memory_bytes, wall_seconds) == (8 * GB, 48 * 60)


def test_stage_that_asks_for_other_resources_is_measured_again(running, end_jobs):
    end_jobs(step(running))
    step(running, AT + HOUR)
    Stage.objects.update(memory_bytes=2_600_000_000)
    assert step(running, AT + HOUR).asked["memory_bytes"] == 2_600_000_000


def test_retry_gets_what_the_stage_asks_for(running, end_jobs):
    end_jobs(step(running))
    second = step(running, AT + HOUR)
    jobs = end_jobs(second, failed=[0], tasks=[0], at=AT + 2 * HOUR)
    verdict(jobs[0], "service", at=AT)
    dispatch.refresh_progress(cluster=running.cluster, at=AT + 2 * HOUR)
    retry = retry_failed(second, at=AT + 2 * HOUR)
    assert (asked_by(retry), retry.changes) == ((8 * GB, 8 * 3600), {})


def test_page_and_api_show_what_was_asked_measured_and_set(running, end_jobs, client, liaison):
    end_jobs(step(running))
    step(running, AT + HOUR)
    address = reverse("submission:request", args=[running.request.key])
    page = " ".join(page_of(client, liaison, address).split())
    assert "one was measured by its first jobs." in page
    assert "2.5 GB of memory instead of 8 GB (95 % needed at most 2 GB)" in page
    assert "48 min of wall time instead of 8 h (95 % needed at most 30 min)" in page
    [row] = client.get(f"/api/v1/submissions/{running.request.key}/scouts/").json()
    assert row["asked_memory_bytes"] == 8 * GB
    assert row["measured_memory_bytes"] == 2 * GB
    assert row["wall_seconds"] == 48 * 60


@given(
    st.lists(st.integers(1, 10 * GB), max_size=30),
    st.integers(MIB, 10 * GB),
    st.integers(1, 20 * GB),
    st.booleans(),
)
def test_no_bound_is_exceeded_and_no_scout_would_have_been_killed(
    used, requested, signed, hit_limit
):
    bound = signed_bound(requested, signed=signed, limit_of_cluster=None)
    use = ScoutUse(memory_bytes=used, hit_memory=hit_limit)
    memory_bytes = fit_memory(use, requested=requested, bound=bound)
    assert memory_bytes <= bound
    if memory_bytes < requested:
        assert len(used) >= 5
        assert not hit_limit
        assert max(used) < memory_bytes


def test_few_scouts_change_nothing():
    use = ScoutUse(memory_bytes=4 * [GB], wall_seconds=4 * [60], have_all_ended=True)
    assert fit_memory(use, requested=8 * GB, bound=8 * GB) == 8 * GB
    assert fit_wall_time(use, requested=3600, bound=3600) == 3600
