"""Sending against Slurm's commands, each once, whatever happens in between."""

import os
import signal
import time
from datetime import timedelta

import pytest
from django.db import connections

from apps.core.models import Event
from apps.production.domain.lifecycle.moves import make_move
from apps.production.enums import Verb
from apps.submission import tasks
from apps.submission.domain.arrays.assignment import (
    choose_cluster,
    send_refused_again,
)
from apps.submission.domain.arrays.plan import plan_next
from apps.submission.domain.arrays.submissions import clusters_to_look_at
from apps.submission.domain.dispatch import dispatch
from apps.submission.domain.retries.by_stage import retry_failed
from apps.submission.enums import SubmissionState
from apps.submission.models import Submission
from tests.factories.requests import AT

LATER = AT + timedelta(minutes=10)


@pytest.fixture
def running(make, cluster, approver):
    request = make("running")
    return choose_cluster(request=request, cluster=cluster, by=approver, at=AT)


def step(assignment, at=AT):
    """Plan, claim and send once; return what was sent."""
    plan_next(assignment=assignment, at=at)
    claimed = dispatch.claim_next(cluster=assignment.cluster, at=at)
    return dispatch.send(submission=claimed, at=at) if claimed else None


def test_the_chain_is_sent_stage_by_stage(running, fake, end_jobs):
    first, second = step(running), step(running)
    assert step(running) is None
    assert [(s.first, s.tasks, s.spool_id, s.state) for s in (first, second)] == [
        (0, 4, "100", "sent"),
        (4, 2, "101", "sent"),
    ]
    assert fake.script("100") == first.script
    options = fake.options("100")
    assert {"--array=0-3", "--time=480", "--mem=3815M", "--account=nova", "--chdir=/tmp"} <= set(
        options
    )
    assert f"--comment=opsportal:{first.token}" in options
    names = (
        "OPSPORTAL_PHASE_TOKEN,OPSPORTAL_REQUEST,OPSPORTAL_STAGE,OPSPORTAL_SUBMISSION,OPSPORTAL_URL"
    )
    assert f"--export={names}" in options
    environment = fake.environment("100")
    assert environment["OPSPORTAL_REQUEST"] == "NOVA-0001"
    assert environment["OPSPORTAL_STAGE"] == "one"
    assert "DATABASE_URL" not in environment
    assert "SECRET_KEY" not in environment

    end_jobs(first)
    end_jobs(second, failed={1})
    dispatch.refresh_progress(cluster=running.cluster, at=LATER)
    second.refresh_from_db()
    assert (second.ended, second.completed, second.failed_indices, second.settled_at) == (
        2,
        1,
        "5",
        LATER,
    )
    assert step(running, LATER) is None, "a job of the first stage has failed"

    (again,) = retry_failed(
        request=running.request, position=0, by=_approver(running), at=LATER, reason="503"
    ).submissions
    assert (again.indices, again.tasks, again.retry_of_id) == ("5", 1, second.pk)
    sent = step(running, LATER)
    assert sent.pk == again.pk
    assert "indices=(5)" in fake.script(sent.spool_id)
    end_jobs(sent, at=LATER)
    dispatch.refresh_progress(cluster=running.cluster, at=LATER)
    assert step(running, LATER).stage_name == "two"
    kinds = list(
        Event.objects.filter(kind__startswith="submission.").values_list("kind", flat=True)
    )
    assert kinds.count("submission.sent") == 4
    assert kinds.count("submission.ended") == 3


def _approver(assignment):
    return assignment.request.approved_by


def test_a_hold_keeps_jobs_back(running, approver, fake):
    plan_next(assignment=running, at=AT)
    running.request.refresh_from_db()
    make_move(verb=Verb.HOLD, request=running.request, by=approver, at=AT, reason="SAM is down")
    assert step(running) is None
    assert fake.jobs() == []
    make_move(verb=Verb.RELEASE, request=running.request, by=approver, at=AT)
    assert step(running) is not None


def test_no_more_jobs_than_the_cluster_or_the_request_may_have(running, cluster, fake, end_jobs):
    cluster.submission = {**cluster.submission, "most_in_flight": 5}
    cluster.save()
    sent = step(running)
    assert step(running) is None
    end_jobs(sent, tasks=[0])
    dispatch.refresh_progress(cluster=cluster, at=AT)
    assert step(running).tasks == 2
    assert len(fake.jobs()) == 2


def test_a_cluster_that_is_switched_off_gets_nothing(running, cluster, fake):
    plan_next(assignment=running, at=AT)
    cluster.submits = False
    cluster.save()
    assert dispatch.claim_next(cluster=cluster, at=AT) is None


def test_what_the_scheduler_refuses_waits_for_a_person(running, fake, approver):
    fake.mode("refuse")
    submission = step(running)
    assert (submission.state, submission.sent_at) == ("failed", None)
    assert "Invalid account" in submission.last_error
    assert step(running, LATER) is None
    fake.mode("ok")
    send_refused_again(submission=submission, by=approver, at=LATER)
    assert step(running, LATER).pk == submission.pk
    assert len(fake.jobs()) == 1


def test_a_controller_that_is_down_and_comes_back(running, cluster, fake):
    fake.mode("down")
    submission = step(running)
    assert submission.state == "unknown"
    dispatch.look_for_lost(cluster=cluster, at=LATER)
    submission.refresh_from_db()
    assert submission.state == "unknown", "as long as nobody can say, it is not sent again"
    fake.mode("ok")
    later = LATER + timedelta(minutes=10)
    dispatch.look_for_lost(cluster=cluster, at=later)
    submission.refresh_from_db()
    assert submission.state == "planned"
    assert step(running, later + timedelta(minutes=1)).pk == submission.pk
    assert len(fake.jobs()) == 1


@pytest.mark.parametrize("program", ["squeue", "sacct"])
def test_one_that_timed_out_after_it_was_taken_is_found(running, cluster, fake, program):
    cluster.options = {**cluster.options, "timeout_seconds": "2"}
    cluster.save()
    running.refresh_from_db()
    fake.mode("late")
    submission = step(running)
    assert submission.state == "unknown"
    fake.mode("ok")
    fake.asked_by(program)
    assert dispatch.look_for_lost(cluster=cluster, at=AT) == 0, "not before its time is over"
    assert dispatch.look_for_lost(cluster=cluster, at=LATER) == 1
    submission.refresh_from_db()
    assert (submission.state, submission.spool_id, submission.sent_at) == ("sent", "100", AT)
    assert [name for _, name in fake.jobs()] == [submission.name]


def killed_while_sending(cluster, fake, mark) -> None:
    """Let another process claim and send, and kill it once `mark` is there."""
    connections.close_all()
    child = os.fork()
    if not child:
        try:
            connections.close_all()
            dispatch.send(submission=dispatch.claim_next(cluster=cluster, at=AT), at=AT)
        finally:
            os._exit(1)
    deadline = time.monotonic() + 30
    while not mark():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("mode", "taken"), [("late", 1), ("hang", 0)])
def test_killed_between_intent_and_note(running, cluster, fake, mode, taken):
    cluster.options = {**cluster.options, "timeout_seconds": "2"}
    cluster.save()
    fake.mode(mode)
    planned = plan_next(assignment=running, at=AT)
    killed_while_sending(cluster, fake, lambda: fake.jobs() or (fake.directory / "began").exists())
    planned.refresh_from_db()
    assert (planned.state, planned.attempts) == (SubmissionState.SENDING, 1)
    fake.mode("ok")
    time.sleep(3)  # sbatch ends with its time limit although its parent is gone
    assert dispatch.claim_next(cluster=cluster, at=AT) is None
    dispatch.look_for_lost(cluster=cluster, at=LATER)
    planned.refresh_from_db()
    assert planned.state == ("sent" if taken else "planned")
    if not taken:
        submission = dispatch.claim_next(cluster=cluster, at=LATER + timedelta(minutes=1))
        assert dispatch.send(submission=submission, at=LATER).state == "sent"
    assert [name for _, name in fake.jobs()] == [planned.name]
    assert Submission.objects.count() == 1


def test_the_task_sends_all_that_is_due_and_stops_where_nobody_answers(running, cluster, fake):
    tasks.send_to(cluster_id=cluster.pk)
    assert [(s.number, s.state) for s in Submission.objects.all()] == [(1, "sent"), (2, "sent")]
    tasks.send_to(cluster_id=cluster.pk)
    assert len(fake.jobs()) == 2


def test_the_task_waits_for_a_controller_that_is_down(running, cluster, fake):
    fake.mode("down")
    tasks.send_to(cluster_id=cluster.pk)
    assert [s.state for s in Submission.objects.all()] == ["unknown"]


def test_a_cluster_that_gets_no_more_is_looked_at_while_it_has_jobs(
    running, cluster, fake, end_jobs
):
    sent = step(running)
    cluster.submits = False
    cluster.save()
    assert list(clusters_to_look_at()) == [cluster]
    end_jobs(sent)
    dispatch.refresh_progress(cluster=cluster, at=LATER)
    assert list(clusters_to_look_at()) == []
