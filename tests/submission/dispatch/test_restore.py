"""A restored database submits nothing twice: on hold, looked up, and what is unknown is named."""

import uuid
from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import call_command

from apps.jobs.models import Job
from apps.production.domain.holds import lift_hold
from apps.production.models import Hold
from apps.submission import tasks
from apps.submission.domain.arrays.assignment import choose_cluster
from apps.submission.domain.arrays.plan import plan_next
from apps.submission.domain.dispatch import dispatch, restore
from apps.submission.domain.dispatch.restore import note_unknown_arrays, stop_after_restore
from apps.submission.models import KnownDatabase, Submission, UnknownArray
from tests.factories.requests import AT

LATER = AT + timedelta(minutes=10)


@pytest.fixture
def running(make, cluster, approver):
    request = make("running")
    return choose_cluster(request=request, cluster=cluster, by=approver, at=AT)


@pytest.fixture
def restored(db, monkeypatch) -> None:
    """The database is another one than the last that the portal had."""
    stop_after_restore(at=AT)
    monkeypatch.setattr(restore, "database_identity", lambda: "7/16390")


def test_the_first_database_is_noted_and_nothing_stops(db) -> None:
    assert not stop_after_restore(at=AT)
    assert not stop_after_restore(at=LATER)
    first = KnownDatabase.objects.get()
    system, _, database = first.identity.partition("/")
    assert system.isdigit()
    assert database.isdigit()
    assert (first.seen_at, first.state_at) == (LATER, None)
    assert not Hold.objects.exists()


@pytest.mark.parametrize(
    ("has_target", "minutes", "is_restore"),
    [(False, 4, False), (True, 1, True), (False, 10, True)],
    ids=["failover", "to a moment", "to the end of the archive"],
)
def test_new_timeline_is_a_restore_with_a_target_or_after_a_while(
    db, monkeypatch, has_target, minutes, is_restore
) -> None:
    stop_after_restore(at=AT)
    old = KnownDatabase.objects.get().timeline
    monkeypatch.setattr(restore, "database_timeline", lambda: old + 1)
    monkeypatch.setattr(restore, "has_recovery_target", lambda: has_target)
    at = AT + timedelta(minutes=minutes)
    assert stop_after_restore(at=at) is is_restore
    assert not stop_after_restore(at=at + timedelta(days=1)), "once"
    newest = KnownDatabase.objects.latest("pk")
    assert (newest.timeline, newest.state_at) == (old + 1, AT if is_restore else None)
    assert Hold.objects.exists() is is_restore


def test_timeline_of_a_database_that_an_older_version_noted_is_no_restore(db, monkeypatch) -> None:
    stop_after_restore(at=AT)
    KnownDatabase.objects.update(timeline=None)
    monkeypatch.setattr(restore, "has_recovery_target", lambda: True)
    assert not stop_after_restore(at=LATER)
    assert KnownDatabase.objects.get().timeline == restore.database_timeline()


def test_another_database_puts_all_production_on_hold_once(running, restored, fake) -> None:
    tasks.send_to(cluster_id=running.cluster_id)
    tasks.send_to(cluster_id=running.cluster_id)
    hold = Hold.objects.get()
    assert (hold.experiment, hold.stage, hold.by) == (None, None, None)
    assert f"a copy of {AT:%Y-%m-%d %H:%M} UTC" in hold.reason
    assert fake.jobs() == []
    assert KnownDatabase.objects.filter(state_at=AT).count() == 1


@pytest.mark.parametrize("was_sent", [True, False])
def test_what_the_copy_has_as_planned_is_looked_up_first(
    running, restored, fake, approver, was_sent
) -> None:
    planned = plan_next(assignment=running, at=AT)
    if was_sent:
        dispatch.send(submission=dispatch.claim_next(cluster=running.cluster, at=AT), at=AT)
        Submission.objects.update(
            state="planned", spool_id="", sent_at=None, attempts=0, sending_at=None
        )
    tasks.send_to(cluster_id=running.cluster_id)
    planned.refresh_from_db()
    assert planned.state == ("sent" if was_sent else "planned")
    assert len(fake.jobs()) == was_sent

    lift_hold(hold=Hold.objects.get(), by=approver, at=LATER)
    Submission.objects.update(due_at=AT)
    tasks.send_to(cluster_id=running.cluster_id)
    planned.refresh_from_db()
    assert planned.state == "sent"
    names = [name for _, name in fake.jobs()]
    assert names.count(planned.name) == 1


def test_jobs_that_the_copy_does_not_know_hold_their_stage(
    running, restored, fake, end_jobs, approver
) -> None:
    fake.asked_by("nobody")
    plan_next(assignment=running, at=AT)
    sent = dispatch.send(submission=dispatch.claim_next(cluster=running.cluster, at=AT), at=AT)
    end_jobs(sent)
    known, foreign, older = Job.objects.order_by("pk")[:3]
    Job.objects.filter(pk=known.pk).update(name=sent.name)
    for row, name, at in (
        (Job.objects.order_by("pk")[3], f"{running.request.key}.2.{uuid.uuid4().hex}", AT),
        (foreign, f"OTHER-0001.1.{uuid.uuid4().hex}", AT),
        (older, f"{running.request.key}.1.{uuid.uuid4().hex}", AT - timedelta(days=1)),
    ):
        Job.objects.filter(pk=row.pk).update(
            name=name, spool_id=f"9{row.pk}", submitted_at=at, ended_at=at
        )
    assert note_unknown_arrays(cluster=running.cluster, at=LATER) == [], "nothing was restored"
    assert stop_after_restore(at=LATER)

    (unknown,) = note_unknown_arrays(cluster=running.cluster, at=LATER)
    assert (unknown.request, unknown.position) == (running.request, 1)
    hold = Hold.objects.get(stage__position=1)
    assert f"on farm are not known here: {unknown.spool_id}." in hold.reason

    lift_hold(hold=hold, by=approver, at=LATER)
    assert note_unknown_arrays(cluster=running.cluster, at=LATER) == []
    assert UnknownArray.objects.count() == 1
    assert not Hold.objects.filter(stage__isnull=False, lifted_at=None).exists()
    week_later = LATER + restore.LOOKED_FOR + timedelta(seconds=1)
    UnknownArray.objects.all().delete()
    assert note_unknown_arrays(cluster=running.cluster, at=week_later) == []


def test_command_tells_of_a_copy_that_is_not_noticed_by_itself(running, fake, approver) -> None:
    fake.asked_by("nobody")
    tasks.send_to(cluster_id=running.cluster_id)
    assert not Hold.objects.exists()
    for _ in range(2):
        output = StringIO()
        call_command("after_restore", stdout=output)
        assert "production is on hold" in output.getvalue()
        assert "0 arrays are not known to the portal" in output.getvalue()
    assert Hold.objects.count() == 1
    assert KnownDatabase.objects.filter(state_at__isnull=False).count() == 1
    lift_hold(hold=Hold.objects.get(), by=approver, at=LATER)
    call_command("after_restore", stdout=StringIO())
    assert Hold.objects.filter(lifted_at=None).count() == 1, "it was restored once more"
