"""Who is told of which event."""

from datetime import timedelta

import pytest

from apps.core.domain import event_kinds
from apps.core.domain.event_kinds import EventKind, kind_named, kind_of
from apps.core.domain.events import publish
from apps.core.enums import Group
from apps.notifications.domain.notifications import notify, unread_count, visible_notifications
from apps.notifications.domain.preferences import follow_request
from apps.notifications.enums import Level
from apps.notifications.models import Follow, Notification
from apps.production.domain.approvals.delegations import delegate
from apps.production.enums import Verb
from apps.production.events import kind_of_move
from tests.factories import approvals
from tests.factories.people import person
from tests.notifications.told import FRIDAY as AT
from tests.notifications.told import deliver

pytestmark = pytest.mark.django_db


def happen(request, kind, by="somebody", **data):
    event = publish(kind=kind, target=request, by=by, at=AT, data=data)
    deliver()
    return dict(Notification.objects.filter(event=event).values_list("user__username", "group"))


def test_every_verb_has_words():
    assert all(kind_named(kind_of_move(verb)).predicate for verb in Verb)


def test_waiting_request_is_the_turn_of_approvers_and_news_to_the_requester(asked):
    told = dict(Notification.objects.values_list("user__username", "group"))
    assert told == {"opg-one": Group.TURN, "nova-liaison": Group.PROGRESS}


def test_groups_that_must_sign_are_asked_and_who_signs_for_them_but_no_other_approver(
    waiting, approver, nova
):
    convener, stand_in = (
        person("convener", ("shifter", nova)),
        person("stand-in", ("shifter", nova)),
    )
    group = approvals.group("Physics of NOvA", convener, experiment=nova)
    approvals.rule(group, experiment=nova)
    delegate(by=convener, to_user=stand_in, from_at=AT, until_at=AT + timedelta(days=1), at=AT)
    deliver()
    told = dict(
        Notification.objects.filter(event__kind="request.pass").values_list(
            "user__username", "group"
        )
    )
    assert told == {"convener": Group.TURN, "stand-in": Group.TURN, "nova-liaison": Group.PROGRESS}


def test_requester_who_may_approve_is_not_asked(waiting, nova):
    liaison = waiting.created_by
    from apps.accounts.domain.roles import grant_role

    grant_role(user=liaison, role="approver", experiment=None, by="test", at=AT)
    deliver()
    told = dict(Notification.objects.values_list("user__username", "group"))
    assert told["nova-liaison"] == Group.PROGRESS


def test_liaisons_are_told_but_who_did_it_and_other_experiments_are_not(
    asked, nova, dune, approver
):
    person("nova-two", ("liaison", nova))
    person("dune-one", ("liaison", dune))
    assert happen(asked, "request.approve", by=approver) == {
        "nova-liaison": Group.OUTCOME,
        "nova-two": Group.OUTCOME,
    }
    assert happen(asked, "request.hold", by="nova-two") == {"nova-liaison": Group.TROUBLE}


def test_kind_that_is_no_longer_declared_is_told_to_requester_and_watchers(
    asked, approver, shifter, monkeypatch
):
    follow_request(request=asked, user=shifter, level=Level.WATCHING)
    with monkeypatch.context() as earlier:
        earlier.setitem(
            event_kinds._kinds,
            "request.split_up",
            EventKind("request.split_up", "split it", "was split"),
        )
        event = publish(kind="request.split_up", target=asked, by="x", at=AT)
    deliver()
    told = dict(Notification.objects.filter(event=event).values_list("user__username", "group"))
    assert told == {"nova-liaison": Group.OTHER, "shift-one": Group.OTHER}
    assert kind_of(event).predicate == "– split up"


def test_muted_request_is_told_to_nobody_who_muted_it(asked, liaison, shifter):
    follow_request(request=asked, user=liaison, level=Level.MUTED)
    follow_request(request=asked, user=shifter, level=Level.WATCHING)
    assert happen(asked, "request.done") == {"shift-one": Group.OUTCOME}
    follow_request(request=asked, user=shifter, level="")
    assert not Follow.objects.filter(user=shifter).exists()


@pytest.mark.parametrize("named", [["shift-one", "nobody-here", 7], "shift-one", {"a": 1}, None])
def test_who_is_named_is_told(asked, shifter, named):
    told = happen(asked, "request.commented", mentioned=named)
    assert ("shift-one" in told) is isinstance(named, list)


def test_reminder_is_for_those_it_names(asked):
    assert happen(asked, "request.reminder", people=["opg-one"]) == {"opg-one": Group.TURN}


def test_told_once_also_when_the_event_comes_again(asked):
    event = publish(kind="request.done", target=asked, by="x", at=AT)
    assert notify(event=event) == 1
    assert notify(event=event) == 0


def test_removed_member_sees_nothing_of_what_was_told(asked, liaison):
    assert unread_count(liaison) == 1
    liaison.memberships.all().delete()
    del liaison._scope
    assert unread_count(liaison) == 0
    assert not visible_notifications(liaison).exists()


def test_queries_do_not_grow_with_people(asked, nova, django_assert_max_num_queries):
    for number in range(12):
        person(f"nova-{number}", ("liaison", nova))
    event = publish(kind="request.done", target=asked, by="x", at=AT)
    with django_assert_max_num_queries(16):
        assert notify(event=event) == 13
