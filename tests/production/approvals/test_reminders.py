"""Reminders say of every wait, once, the same as the inboxes of those they name; and of holds,
to who set them.
"""

from datetime import timedelta

import pytest

from apps.accounts.models import Membership, User
from apps.core.models import Event
from apps.production.domain.approvals.delegations import delegate
from apps.production.domain.approvals.inbox import inbox_items, waiting_for
from apps.production.domain.approvals.reminders import WAITING, remind_of_holds, remind_of_waiting
from apps.production.domain.holds import lift_hold, place_hold
from apps.production.domain.lifecycle.moves import MOVE_FUNCTIONS
from apps.production.enums import RequestState, Verb
from apps.production.models import Request, Signature
from tests.factories import approvals
from tests.factories.people import person
from tests.factories.requests import AT, request_in

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
BY_MOVES = [wait for wait in WAITING if wait in RequestState.values]
OPG = ["nova-approver", "nova-shifter", "opg-one", "shift-one", "two-hats"]
TOLD = {
    "awaiting_approval": ["nova-approver", "opg-one", "stand-in", "two-hats"],
    "changes_requested": ["all-liaison", "nova-liaison", "stand-in", "two-hats"],
    "on_hold": OPG,
    "data_quality": OPG,
}


@pytest.fixture
def everybody(nova, dune, liaison, other_liaison, approver, shifter, admin, both):
    """People of all kinds, also some to whom nothing should be said."""
    for name, role, of in (
        ("nova-approver", "approver", nova),
        ("nova-shifter", "shifter", nova),
        ("dune-shifter", "shifter", dune),
        ("dune-approver", "approver", dune),
        ("all-liaison", "liaison", None),
    ):
        person(name, (role, of))
    gone = [
        person("gone", ("shifter", None), ("liaison", nova)),
        person("gone-stand-in", ("liaison", nova)),
    ]
    for to in (
        person("stand-in", ("liaison", nova)),
        gone[1],
        person("dune-reader", ("liaison", dune)),
    ):
        delegate(by=approver, to_user=to, from_at=AT, until_at=AT + 90 * DAY, at=AT)
    User.objects.filter(pk__in=[one.pk for one in gone]).update(is_active=False)


@pytest.fixture
def bring(nova, liaison, approver):
    return lambda state: request_in(state, by=liaison, experiment=nova, approver=approver)


def inboxes(request, at):
    return sorted(user.username for user in User.objects.all() if request in waiting_for(user, at))


@pytest.mark.parametrize("state", BY_MOVES)
def test_whoever_has_it_in_the_inbox_is_reminded_and_nobody_else(state, everybody, bring):
    request, at = bring(state), AT + HOUR + 3 * DAY
    assert remind_of_waiting(at=at - 2 * HOUR) == 0
    assert remind_of_waiting(at=at) == 1
    told = Event.objects.get(kind="request.reminder")
    assert told.data["people"] == inboxes(request, at) == TOLD[state]
    (turn,) = inbox_items([request], User.objects.get(username=TOLD[state][0]), at)
    assert told.reason.startswith(turn.todo)
    assert told.data["since"] == turn.since.isoformat()
    assert remind_of_waiting(at=at + 90 * DAY) == 0


@pytest.mark.parametrize(
    "state", ["draft", "submitted", "queued", "testing", "running", "completing", "done"]
)
def test_what_waits_for_nobody_is_not_reminded_of(state, bring):
    bring(state)
    assert remind_of_waiting(at=AT + 90 * DAY) == 0


def test_held_again_is_another_wait(bring, approver):
    request = bring("on_hold")
    assert remind_of_waiting(at=AT + 4 * DAY) == 1
    MOVE_FUNCTIONS[Verb.RELEASE](request=request, by=approver, at=AT + 5 * DAY)
    again = Request.objects.get(pk=request.pk)
    MOVE_FUNCTIONS[Verb.HOLD](request=again, by=approver, at=AT + 5 * DAY, reason="not yet")
    assert remind_of_waiting(at=AT + 7 * DAY) == 0
    assert remind_of_waiting(at=AT + 8 * DAY) == 1


def test_days_are_those_of_the_rules(bring, nova):
    approvals.rule(experiment=nova, remind_after_days=0)
    bring("on_hold")
    assert remind_of_waiting(at=AT + 90 * DAY) == 0
    approvals.rule(experiment=nova, remind_after_days=9)
    assert remind_of_waiting(at=AT + 9 * DAY) == 0
    assert remind_of_waiting(at=AT + 10 * DAY) == 1


def test_with_all_signatures_there_the_last_word_is_asked_of_all_that_may_sign(
    everybody, bring, approver, liaison
):
    request = bring("awaiting_approval")
    Signature.objects.create(
        request=request,
        by=approver,
        made_by=liaison,
        sent_by=liaison,
        at=AT,
        version=request.version,
        content={},
    )
    at = AT + 4 * DAY
    assert remind_of_waiting(at=at) == 1
    assert Event.objects.get(kind="request.reminder").data["people"] == inboxes(request, at) != []


def test_queries_do_not_grow_with_what_was_reminded_of(bring, django_assert_num_queries):
    bring("on_hold")
    assert remind_of_waiting(at=AT + 4 * DAY) == 1
    with django_assert_num_queries(5):
        assert remind_of_waiting(at=AT + 5 * DAY) == 0
    for state in ("on_hold", "on_hold", "data_quality", "data_quality", "changes_requested"):
        bring(state)
    assert remind_of_waiting(at=AT + 5 * DAY) == 5
    with django_assert_num_queries(5):
        assert remind_of_waiting(at=AT + 6 * DAY) == 0


def reminders_of_holds():
    return list(
        Event.objects.filter(kind="hold.reminder")
        .order_by("pk")
        .values_list("target_label", "data__people")
    )


def test_whoever_set_a_hold_is_reminded_once_in_each_interval_while_it_lasts(
    nova, shifter, approver
):
    wide = place_hold(by=shifter, at=AT, reason="Power cut.")
    narrow = place_hold(by=approver, at=AT + DAY, reason="Disks.", experiment=nova)
    assert remind_of_holds(at=AT + 3 * DAY - HOUR) == 0
    assert [remind_of_holds(at=AT + 3 * DAY), remind_of_holds(at=AT + 3 * DAY)] == [1, 0]
    event = Event.objects.get(kind="hold.reminder")
    assert (event.actor, event.data["people"]) == ("opsportal", [shifter.username])
    assert (
        event.reason
        == "Lift or keep the hold: all production is on hold since 20 Nov 2026. Power cut."
    )
    assert remind_of_holds(at=AT + 5 * DAY) == 1
    lift_hold(hold=narrow, by=shifter, at=AT + 5 * DAY)
    assert [remind_of_holds(at=AT + days * DAY) for days in (6, 7, 8, 9)] == [1, 0, 0, 1]
    lift_hold(hold=wide, by=shifter, at=AT + 9 * DAY)
    assert remind_of_holds(at=AT + 90 * DAY) == 0
    assert [people for _, people in reminders_of_holds()] == [
        ["shift-one"],
        ["opg-one"],
        ["shift-one"],
        ["shift-one"],
    ]


def test_where_that_person_may_lift_it_no_more_those_who_may_are_reminded(
    everybody, nova, shifter, approver
):
    place_hold(by=shifter, at=AT, reason="Disks.", experiment=nova)
    place_hold(by=approver, at=AT, reason="Power cut.")
    Membership.objects.filter(user=shifter).delete()
    User.objects.filter(pk=approver.pk).update(is_active=False)
    assert remind_of_holds(at=AT + 3 * DAY) == 2
    told = dict(reminders_of_holds())
    assert told["NOvA"] == ["nova-approver", "nova-shifter", "two-hats"]
    assert told["All production"] == ["two-hats"]


def test_hold_of_a_stage_is_reminded_of_until_its_request_is_closed(bring, shifter, approver):
    request = bring("running")
    place_hold(by=shifter, at=AT, reason="Disks.", stage=request.stages.first())
    assert remind_of_holds(at=AT + 3 * DAY) == 1
    assert Event.objects.get(kind="hold.reminder").target_label == str(request)
    MOVE_FUNCTIONS[Verb.CANCEL](
        request=request, by=approver, at=AT + 4 * DAY, reason="No longer needed."
    )
    assert remind_of_holds(at=AT + 9 * DAY) == 0


def test_days_of_holds_are_those_of_rules_for_every_type(nova, dune, shifter, bring):
    approvals.rule(experiment=nova, remind_after_days=0)
    approvals.rule(experiment=dune, workflow=bring("draft").workflow.type, remind_after_days=1)
    for experiment in (nova, dune, None):
        place_hold(by=shifter, at=AT, reason="Disks.", experiment=experiment)
    assert [remind_of_holds(at=AT + days * DAY) for days in (2, 3)] == [0, 2]
    assert "NOvA" not in dict(reminders_of_holds())


def test_queries_do_not_grow_with_holds_that_were_reminded_of(
    nova, dune, shifter, django_assert_num_queries
):
    place_hold(by=shifter, at=AT, reason="Disks.", experiment=nova)
    assert remind_of_holds(at=AT + 4 * DAY) == 1
    with django_assert_num_queries(2):
        assert remind_of_holds(at=AT + 5 * DAY) == 0
    for experiment in (dune, None):
        place_hold(by=shifter, at=AT + 5 * DAY, reason="Disks.", experiment=experiment)
    with django_assert_num_queries(2):
        assert remind_of_holds(at=AT + 6 * DAY) == 0
