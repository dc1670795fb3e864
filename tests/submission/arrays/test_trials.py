"""A test of at most 100 events: good, it goes on; not good, it is held; failed by a service,
it is made again.
"""

from datetime import timedelta

import pytest

from apps.core.errors import InvalidTransition
from apps.core.models import Event
from apps.production.domain.lifecycle.moves import make_move
from apps.production.enums import Verb
from apps.submission.domain.arrays.assignment import assign_request
from apps.submission.domain.arrays.plan import plan_next
from apps.submission.domain.arrays.trials import evaluate_tests
from apps.submission.domain.dispatch import dispatch
from apps.submission.domain.retries.by_stage import retry_failed
from tests.factories import requests
from tests.factories.requests import AT
from tests.factories.verdicts import judge

LATER = AT + timedelta(minutes=10)


@pytest.fixture
def tested(make, cluster, approver):
    request = make("queued")
    return assign_request(request=request, cluster=cluster, by=approver, at=AT, verb=Verb.TEST)


def step(assignment, at=AT):
    plan_next(assignment=assignment, at=at)
    claimed = dispatch.claim_next(cluster=assignment.cluster, at=at)
    return dispatch.send(submission=claimed, at=at) if claimed else None


def end(assignment, submission, end_jobs, at=LATER, **how):
    end_jobs(submission, at=at, **how)
    dispatch.refresh_progress(cluster=assignment.cluster, at=at)
    submission.refresh_from_db()


def state_of(assignment) -> str:
    assignment.request.refresh_from_db()
    return assignment.request.state


def test_a_good_test_of_every_stage_begins_production(tested, end_jobs, fake):
    first = step(tested)
    assert (first.stage_name, first.is_test, first.tasks) == ("one", True, 1)
    assert "OPSPORTAL_EVENTS_PER_JOB=$((10 + (index < 0)))" in fake.script(first.spool_id)
    assert step(tested) is None
    end(tested, first, end_jobs)
    assert evaluate_tests(cluster=tested.cluster, at=LATER) == []
    second = step(tested, LATER)
    assert second.stage_name == "two"
    end(tested, second, end_jobs)
    evaluate_tests(cluster=tested.cluster, at=LATER)
    assert state_of(tested) == "running"
    event = Event.objects.get(kind="request.start")
    assert (event.actor, event.reason) == (
        "opsportal",
        "The test passed. one: 30 min, 2 GB; two: 30 min, 2 GB",
    )
    sent = [step(tested, LATER) for _ in range(2)]
    assert [(s.first, s.tasks, s.is_test) for s in sent] == [(0, 4, False), (4, 2, False)], (
        "tests count for nothing"
    )


def test_at_most_100_events_are_made(make, cluster, approver, fake):
    stages = (requests.stage("one", jobs=2, events=5_000),)
    request = make("queued", stages=stages)
    assignment = assign_request(
        request=request, cluster=cluster, by=approver, at=AT, verb=Verb.TEST
    )
    assert "OPSPORTAL_EVENTS_PER_JOB=$((100 + (index < 0)))" in fake.script(
        step(assignment).spool_id
    )


def test_a_test_that_failed_holds_the_request_and_a_release_tests_again(tested, end_jobs, approver):
    test = step(tested)
    end(tested, test, end_jobs, failed={0})
    assert evaluate_tests(cluster=tested.cluster, at=LATER) == [], "the verdict may still come"
    assert step(tested, LATER) is None
    judge(test, {0: "code"}, at=LATER)
    evaluate_tests(cluster=tested.cluster, at=LATER)
    assert state_of(tested) == "on_hold"
    event = Event.objects.get(kind="request.hold")
    assert event.reason == "The test of one failed, code problem: it was a code problem."
    make_move(verb=Verb.RELEASE, request=tested.request, by=approver, at=LATER)
    again = step(tested, LATER)
    assert (again.number, again.is_test, again.stage_name) == (2, True, "one")
    end(tested, again, end_jobs, at=LATER + timedelta(minutes=1))
    assert step(tested, LATER).stage_name == "two"


def test_a_test_without_a_verdict_is_held_in_the_end(tested, end_jobs):
    test = step(tested)
    end(tested, test, end_jobs, failed={0})
    evaluate_tests(cluster=tested.cluster, at=LATER + timedelta(minutes=16))
    assert state_of(tested) == "on_hold"


def test_a_test_that_a_service_failed_is_made_again_twice(tested, end_jobs):
    at = LATER
    for _ in range(3):
        test = step(tested, at)
        at += timedelta(minutes=10)
        end(tested, test, end_jobs, at=at, failed={0})
        judge(test, {0: "service"}, at=at, service="samweb")
        evaluate_tests(cluster=tested.cluster, at=at)
    assert state_of(tested) == "on_hold"
    assert [s.number for s in tested.request.submissions.all()] == [1, 2, 3]


def test_failed_tests_are_no_failed_jobs_to_be_sent_again(tested, end_jobs, approver):
    end(tested, step(tested), end_jobs, failed={0})
    with pytest.raises(InvalidTransition, match="no failed job"):
        retry_failed(request=tested.request, position=0, by=approver, at=LATER)
