"""Arrays that Slurm has accepted and forgotten are submitted again, others never."""

from datetime import timedelta

import pytest

from apps.core.models import Event
from apps.submission.domain.arrays.assignment import choose_cluster
from apps.submission.domain.arrays.plan import plan_next
from apps.submission.domain.dispatch import dispatch
from apps.submission.domain.dispatch.forgotten import (
    FIRST_LOOK_AFTER,
    LOOK_EVERY,
    look_for_forgotten,
)
from tests.factories.requests import AT

LOOK = AT + FIRST_LOOK_AFTER


@pytest.fixture
def submission(make, cluster, approver, fake):
    """An array that Slurm has accepted."""
    assignment = choose_cluster(request=make("running"), cluster=cluster, by=approver, at=AT)
    plan_next(assignment=assignment, at=AT)
    return send_next(cluster, AT)


def send_next(cluster, at):
    return dispatch.send(submission=dispatch.claim_next(cluster=cluster, at=at), at=at)


def test_a_forgotten_array_is_submitted_again(submission, cluster, fake):
    fake.forget_jobs()
    assert look_for_forgotten(cluster=cluster, at=LOOK - timedelta(seconds=1)) == 0, "too early"
    assert look_for_forgotten(cluster=cluster, at=LOOK) == 1
    submission.refresh_from_db()
    assert (submission.state, submission.spool_id) == ("unknown", "")
    assert "accepted job 100 and no longer knows it" in submission.last_error
    assert Event.objects.filter(kind="submission.unknown").count() == 1

    assert dispatch.look_for_lost(cluster=cluster, at=LOOK) == 0, "it is asked once more, later"
    assert dispatch.look_for_lost(cluster=cluster, at=LOOK + timedelta(minutes=5)) == 1
    later = LOOK + timedelta(minutes=10)
    again = send_next(cluster, later)
    assert (again.pk, again.state, again.sent_at) == (submission.pk, "sent", later)
    assert [name for _, name in fake.jobs()] == [submission.name]


@pytest.mark.parametrize("program", ["squeue", "sacct"])
def test_an_array_that_waits_or_has_finished_is_left(submission, cluster, fake, program):
    fake.asked_by(program)
    assert look_for_forgotten(cluster=cluster, at=LOOK) == 0
    submission.refresh_from_db()
    assert (submission.state, submission.due_at) == ("sent", LOOK + LOOK_EVERY)


def test_an_array_that_the_second_look_finds_is_not_submitted_again(submission, cluster, fake):
    jobs = fake.forget_jobs()
    assert look_for_forgotten(cluster=cluster, at=LOOK) == 1
    fake.remember_jobs(jobs)
    dispatch.look_for_lost(cluster=cluster, at=LOOK + timedelta(minutes=5))
    submission.refresh_from_db()
    assert (submission.state, submission.spool_id, submission.sent_at) == ("sent", "100", AT)
    assert len(fake.jobs()) == 1


def test_nothing_is_doubted_while_slurm_does_not_answer(submission, cluster, fake):
    fake.forget_jobs()
    fake.mode("down")
    assert look_for_forgotten(cluster=cluster, at=LOOK) == 0
    submission.refresh_from_db()
    assert submission.state == "sent"
    fake.mode("ok")
    assert look_for_forgotten(cluster=cluster, at=LOOK) == 1


def test_an_array_with_a_finished_job_is_never_doubted(submission, cluster, fake, end_jobs):
    end_jobs(submission, tasks=[0])
    dispatch.refresh_progress(cluster=cluster, at=AT)
    fake.forget_jobs()
    assert look_for_forgotten(cluster=cluster, at=LOOK) == 0
