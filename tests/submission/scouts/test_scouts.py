"""The first jobs of a stage run before the others, and a broken stage is put on hold."""

import re
from datetime import timedelta

import pytest
from django.urls import reverse
from hypothesis import given
from hypothesis import strategies as st

from apps.diagnosis.enums import VerdictKind
from apps.production.domain.holds import hold_of, lift_hold, place_hold
from apps.production.models import Hold, StageHistory
from apps.submission import tasks
from apps.submission.domain.arrays.assignment import choose_cluster
from apps.submission.domain.arrays.plan import plan_next
from apps.submission.domain.arrays.scouts import scouts_of_stage
from apps.submission.domain.dispatch import dispatch
from apps.submission.domain.scouts.watch import watch_stages
from apps.submission.enums import ScoutState
from apps.submission.models import StageScouts, Submission
from tests.factories.requests import AT, stage
from tests.factories.verdicts import verdict
from tests.pages import page_of

HOUR = timedelta(hours=1)
JOBS = 200


@pytest.fixture
def running(make, cluster, approver):
    cluster.submission |= {"array_size": 100, "most_in_flight": 1_000}
    cluster.save()
    earlier_jobs(make("draft"), attempts=1_000, completed=962)
    request = make("running", stages=(stage("one", jobs=JOBS, events=2_000),))
    return choose_cluster(request=request, cluster=cluster, by=approver, at=AT)


def earlier_jobs(request, *, attempts, completed):
    StageHistory.objects.create(
        request=request,
        experiment=request.experiment,
        name="one",
        attempts=attempts,
        completed=completed,
        core_seconds=0,
        completed_wall_seconds=0,
        wall_seconds=[],
        memory_bytes=[],
        per_day=[],
        last_ended_at=AT,
    )


def step(assignment, at=AT) -> Submission | None:
    """Count, judge, plan and submit once; return what was submitted."""
    assignment.refresh_from_db()
    dispatch.refresh_progress(cluster=assignment.cluster, at=at)
    watch_stages(cluster=assignment.cluster, at=at)
    plan_next(assignment=assignment, at=at)
    claimed = dispatch.claim_next(cluster=assignment.cluster, at=at)
    return dispatch.send(submission=claimed, at=at) if claimed else None


def judge(jobs, kind=VerdictKind.CODE, at=AT):
    for job in jobs:
        if job.state == "failed":
            verdict(job, kind, at=at)


@pytest.mark.parametrize(
    ("jobs", "scouts", "first"),
    [(49, 10, 0), (50, 10, 10), (1_000, 10, 20), (100_000, 10, 100), (1_000, 0, 0)],
)
def test_scouts_are_ten_or_two_percent_of_a_stage_that_is_worth_it(jobs, scouts, first):
    assert scouts_of_stage(jobs, scouts) == first


@given(st.integers(0, 10**6), st.integers(0, 1_000))
def test_scouts_are_never_more_than_a_fifth_of_a_stage(jobs, scouts):
    assert 5 * scouts_of_stage(jobs, scouts) <= jobs


def test_rest_of_a_stage_starts_when_its_first_jobs_have_completed(running, end_jobs):
    first = step(running)
    assert (first.first, first.tasks) == (0, 10)
    assert step(running) is None, "the others wait"

    end_jobs(first, tasks=range(5))
    second = step(running, AT + HOUR)
    assert (second.first, second.tasks) == (10, 100)
    assert step(running, AT + HOUR).tasks == JOBS - 110
    assert StageScouts.objects.get().state == ScoutState.SOUND


def test_stage_whose_first_jobs_fail_is_put_on_hold_with_their_cause(running, end_jobs, approver):
    first = step(running)
    judge(end_jobs(first, failed=range(7), tasks=range(8)))
    assert step(running, AT + HOUR) is None

    [hold] = Hold.objects.all()
    scouts = StageScouts.objects.get()
    assert (scouts.state, scouts.hold, scouts.failed, scouts.completed) == ("broken", hold, 7, 1)
    assert hold.by is None
    assert hold.reason.startswith("7 of the last 8 jobs failed, usually 5.2 %.")
    assert step(running, AT + HOUR) is None

    lift_hold(hold=hold, by=approver, at=AT + HOUR)
    assert step(running, AT + HOUR).tasks == 100, "a person decided to go on"
    judge(end_jobs(first, failed=range(8, 10), tasks=range(8, 10)))
    assert step(running, AT + HOUR).tasks == JOBS - 110
    assert Hold.objects.count() == 1, "it is not stopped again"


def test_stage_that_breaks_later_is_put_on_hold_too(running, end_jobs):
    first = step(running)
    end_jobs(first)
    second = step(running, AT + HOUR)
    assert StageScouts.objects.get().state == ScoutState.SOUND

    end_jobs(second, tasks=range(50), at=AT + HOUR)
    judge(end_jobs(second, failed=range(50, 60), tasks=range(50, 60), at=AT + 2 * HOUR))
    step(running, AT + 3 * HOUR)
    assert StageScouts.objects.get().state == ScoutState.BROKEN
    assert hold_of(running.request, running.request.stages.get())


@pytest.mark.parametrize("kind", [VerdictKind.SERVICE, VerdictKind.USER])
def test_failures_that_others_caused_tell_nothing(running, end_jobs, kind):
    judge(end_jobs(step(running), failed=range(10)), kind)
    assert step(running, AT + HOUR).tasks == 10, "as many scouts again"
    assert StageScouts.objects.get().state == ScoutState.SCOUTING


def test_failed_job_waits_a_quarter_of_an_hour_for_its_verdict(running, end_jobs):
    end_jobs(step(running), failed=range(10))
    assert step(running, AT + HOUR) is None
    assert StageScouts.objects.get().state == ScoutState.SCOUTING
    step(running, AT + HOUR + timedelta(minutes=15))
    assert StageScouts.objects.get().state == ScoutState.BROKEN


def test_stage_that_usually_fails_often_is_not_broken_by_some_failures(running, end_jobs):
    StageHistory.objects.update(completed=700)
    judge(end_jobs(step(running), failed=range(7)))
    assert step(running, AT + HOUR).tasks == 10
    scouts = StageScouts.objects.get()
    assert (scouts.state, round(scouts.usual_rate, 2)) == ("scouting", 0.33)


def test_stage_of_which_nothing_is_known_has_twice_as_many_scouts_before_it_is_stopped(
    running, end_jobs
):
    StageHistory.objects.all().delete()
    judge(end_jobs(step(running), failed=range(10)))
    second = step(running, AT + HOUR)
    assert second.tasks == 10
    judge(end_jobs(second, failed=range(10), at=AT + HOUR))
    step(running, AT + 2 * HOUR)
    assert StageScouts.objects.get().state == ScoutState.BROKEN


def test_failures_that_ended_before_the_jobs_beside_them_do_not_stop_a_stage(running, end_jobs):
    end_jobs(step(running))
    second = step(running, AT + HOUR)
    judge(end_jobs(second, failed=range(0, 100, 10), tasks=range(0, 100, 10), at=AT + HOUR))
    step(running, AT + 2 * HOUR)
    assert StageScouts.objects.get().state == ScoutState.SOUND


def test_broken_stage_that_is_on_hold_already_is_looked_at_again(running, end_jobs, shifter):
    first = step(running)
    hold = place_hold(by=shifter, at=AT, reason="Later.", stage=running.request.stages.get())
    judge(end_jobs(first, failed=range(10)))
    step(running, AT + HOUR)
    assert StageScouts.objects.get().state == ScoutState.SCOUTING

    lift_hold(hold=hold, by=shifter, at=AT + HOUR)
    assert step(running, AT + HOUR) is None
    assert StageScouts.objects.get().state == ScoutState.BROKEN


def test_stage_that_ran_before_there_were_scouts_goes_on(running, cluster):
    cluster.submission |= {"scouts": 0}
    cluster.save()
    assert step(running).tasks == 100
    cluster.submission |= {"scouts": 10}
    cluster.save()
    assert step(running).tasks == 100


def test_nothing_is_read_while_no_job_has_ended(running, end_jobs, django_assert_max_num_queries):
    end_jobs(step(running), tasks=range(2))
    step(running, AT + HOUR)
    with django_assert_max_num_queries(2):
        watch_stages(cluster=running.cluster, at=AT + HOUR)


def test_page_says_what_the_other_jobs_wait_for(running, end_jobs, client, liaison):
    first = step(running)
    address = reverse("submission:request", args=[running.request.key])
    page = page_of(client, liaison, address)
    assert "one starts with 10 jobs." in page
    assert "0 have ended, 0 failed. The other 190" in page

    end_jobs(first, tasks=range(5))
    step(running, AT + HOUR)
    assert "starts with" not in page_of(client, liaison, address)


def test_stopped_stage_goes_on_by_a_click(running, end_jobs, client, approver, liaison):
    first = step(running)
    address = reverse("submission:request", args=[running.request.key])
    judge(end_jobs(first, failed=range(7), tasks=range(7)))
    step(running, AT + HOUR)

    assert "7 of its last 7 jobs failed, usually 5.2 %." in page_of(client, liaison, address)
    assert "Go on with one" not in page_of(client, liaison, address), "only who may submit"
    page = page_of(client, approver, address)
    assert "Go on with one" in page
    [lift] = re.findall(r'action="([^"]*/lift/)"', page)
    answer = client.post(lift, {"to": "request"})
    assert answer.url == running.request.get_absolute_url()
    assert "was stopped" not in page_of(client, approver, address)
    assert step(running, AT + HOUR).tasks == 100


def test_api_lists_the_scouts_of_a_request(running, end_jobs, client, liaison):
    judge(end_jobs(step(running), failed=range(7), tasks=range(7)))
    step(running, AT + HOUR)
    client.force_login(liaison)
    [row] = client.get(f"/api/v1/submissions/{running.request.key}/scouts/").json()
    assert (row["position"], row["state"], row["allowed"], row["failed"]) == (0, "broken", 10, 7)
    assert row["hold"] == Hold.objects.get().pk
    assert row["hold_lifted_at"] is None


def test_portal_watches_by_itself(running, end_jobs, fake):
    tasks.send_to(cluster_id=running.cluster_id)
    first = Submission.objects.get()
    judge(end_jobs(first, failed=range(10), at=AT))
    tasks.send_to(cluster_id=running.cluster_id)
    assert Hold.objects.count() == 1
    assert Submission.objects.count() == 1
