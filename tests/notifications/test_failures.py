"""Failure groups and the end of outages are told to those who can do something about them."""

from datetime import timedelta

import pytest
from django.conf import settings

from apps.core.domain.event_kinds import headline
from apps.core.domain.events import publish
from apps.core.enums import Group
from apps.core.models import Event
from apps.diagnosis.domain.causes.totals import mark_dirty, recount_dirty_hours
from apps.diagnosis.domain.groups.triage import assign_group
from apps.diagnosis.domain.known_errors.changes import decide_change, submit_change
from apps.diagnosis.domain.known_errors.omissions import count_omissions
from apps.diagnosis.domain.packs.changes import propose_pack
from apps.diagnosis.models import FailureGroup
from apps.jobs.domain.records.conversion import hour_of
from apps.notifications.domain.notifications import visible_notifications
from apps.notifications.models import Notification
from apps.statusboard.domain.incidents.incidents import close_incident, open_incident
from apps.statusboard.enums import State
from tests.factories import clusters, jobs, people, statusboard
from tests.factories.verdicts import verdict
from tests.notifications.told import FRIDAY as AT
from tests.notifications.told import deliver

pytestmark = pytest.mark.django_db

KNOWN_ERROR = {
    "title": "Pool is read-only",
    "category": "service",
    "service": "dcache",
    "role": "cause",
    "advice": "retry",
}


def told():
    return sorted(Notification.objects.values_list("user__username", "group"))


def failed_group(*experiments, owner=""):
    group = FailureGroup.objects.create(
        fingerprint="f",
        verdict="service",
        title="samweb",
        status_at=AT,
        first_seen_at=AT,
        last_seen_at=AT,
        owner=owner,
    )
    for number, experiment in enumerate(experiments, 1):
        job = jobs.row(clusters.cluster(f"c{number}"), number, at=AT, experiment=experiment)
        verdict(job, at=AT, group=group)
        mark_dirty([hour_of(AT)])
    return group


def test_new_group_is_told_to_the_opg_and_those_who_may_triage_it(
    nova, liaison, other_liaison, shifter, approver
):
    group = failed_group(nova, owner=other_liaison.username)
    publish(kind="group.new", target=group, by="diagnosis", at=AT)
    publish(kind="group.moved", target=group, by=liaison, at=AT)
    deliver()
    people_told = {name for name, kind in told() if kind == Group.FAILURES}
    assert people_told == {
        liaison.username,
        other_liaison.username,
        shifter.username,
        approver.username,
    }
    assert Notification.objects.count() == 4, "a change of status is told to nobody"
    assert not visible_notifications(other_liaison).exists(), "the owner has no access any more"
    assert visible_notifications(shifter).get().get_absolute_url() == group.get_absolute_url()


def test_group_of_two_experiments_is_not_told_to_the_liaison_of_one(nova, dune, liaison, shifter):
    group = failed_group(nova)
    recount_dirty_hours()
    job = jobs.row(clusters.cluster("other"), 9, at=AT + timedelta(minutes=1), experiment=dune)
    verdict(job, at=AT, group=group)
    publish(kind="group.regressed", target=group, by="diagnosis", at=AT)
    deliver()
    assert told() == [(shifter.username, Group.FAILURES)]


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("group.new", "New kind of failure"),
        ("group.jumped", "Many more failures than before"),
        ("group.regressed", "Failing again"),
        ("group.assigned", "Failure group assigned"),
    ],
)
def test_title_of_a_group_is_not_the_subject_of_a_sentence(kind, words):
    event = Event(kind=kind, target_label="F-24 wn-0101: nearly every job fails")
    assert headline(event) == f"{words}: F-24 wn-0101: nearly every job fails"


def test_end_of_an_outage_is_told_with_the_jobs_to_retry(nova, shifter, liaison):
    samweb = statusboard.service("samweb", people.LONG_AGO)
    farm = clusters.cluster(service=samweb)
    incident = open_incident(
        service=samweb,
        state=State.DOWN,
        title="503",
        by=shifter,
        at=AT,
        started_at=AT - timedelta(hours=1),
    )
    for number in (1, 2):
        job = jobs.row(farm, number, at=AT + timedelta(minutes=5), experiment=nova)
        verdict(job, at=AT, service="samweb", later_state="completed" if number == 2 else "")
    close_incident(incident=incident, by=shifter, at=AT + timedelta(hours=1), reason="Restarted.")
    deliver()
    deliver()  # what the first round published
    assert (
        Event.objects.get(kind="impact.retryable").reason
        == "samweb is back: 1 failed job was not retried."
    )
    assert told() == [(shifter.username, Group.FAILURES)]
    assert Notification.objects.get().get_absolute_url() == f"/retries/incident/{incident.pk}/"


def test_assignee_of_a_group_is_told(nova, liaison, shifter):
    group = failed_group(nova)
    recount_dirty_hours()
    assign_group(group=group, owner=liaison.username, by=shifter, at=AT)
    deliver()
    assert told() == [(liaison.username, Group.TURN)]
    assert Notification.objects.get().get_absolute_url() == group.get_absolute_url()
    assign_group(group=group, owner=shifter.username, by=shifter, at=AT)
    deliver()
    assert Notification.objects.count() == 1, "nobody is told what they did themselves"


def test_approvers_are_told_of_a_proposed_known_error_and_its_author_of_the_decision(
    liaison, approver, shifter
):
    values = KNOWN_ERROR | {"regex": "pool [0-9]+ is read-only", "example": "pool 7 is read-only"}
    change = submit_change(
        known_error="POOL", values=values, by=liaison, at=AT, reason="Seen twice."
    )
    deliver()
    assert told() == [(approver.username, Group.TURN)]
    assert Notification.objects.get().get_absolute_url() == change.get_absolute_url()
    assert visible_notifications(approver).exists()
    decide_change(change=change, approve=False, by=approver, at=AT, reason="Too general.")
    deliver()
    assert told() == sorted([(approver.username, Group.TURN), (liaison.username, Group.OUTCOME)])


def test_approvers_are_told_of_a_proposed_pack(nova, liaison, approver):
    sample = (settings.BASE_DIR / "docs" / "experiment-pack.yaml").read_text()
    proposed = propose_pack(text=sample, by=liaison, at=AT, reason="Our first one.")
    deliver()
    assert told() == [(approver.username, Group.TURN)]
    assert Notification.objects.get().get_absolute_url() == proposed.get_absolute_url()


def test_approvers_are_told_once_of_a_known_error_that_is_too_slow(liaison, approver, shifter):
    values = KNOWN_ERROR | {"regex": "pool [0-9]+ is read-only", "example": "pool 7 is read-only"}
    submit_change(known_error="POOL", values=values, by=approver, at=AT, reason="Seen twice.")
    job = jobs.row(clusters.cluster(), 1, at=AT)
    for _ in range(2):
        count_omissions({job: ["POOL", "GONE"]}, at=AT)
    deliver()
    assert told() == [(approver.username, Group.TURN)]
    assert Notification.objects.get().get_absolute_url() == "/failures/known-errors/POOL/"
