"""The whole matrix of state, verb and role against the declared table."""

from copy import copy
from datetime import timedelta
from importlib.metadata import EntryPoint
from itertools import product

import pytest

from apps.core.domain.events import events_of
from apps.core.errors import InvalidFields, InvalidTransition, NotAllowed
from apps.production.domain.lifecycle import moves as moves_module
from apps.production.domain.lifecycle.guards import CLOSING_CHECKS
from apps.production.domain.lifecycle.moves import (
    MOVE_FUNCTIONS,
    moves_for,
    submit_request,
    supersede_request,
)
from apps.production.domain.lifecycle.steps import apply_move
from apps.production.domain.lifecycle.transitions import TRANSITIONS, actor_of, transitions_from
from apps.production.domain.requests.drafts import save_draft
from apps.production.enums import PORTAL, Actor, RequestState, Verb
from apps.production.models import Request
from apps.production.tasks import check_request, check_waiting
from tests.factories.people import person
from tests.factories.requests import AT, content, draft, pass_quality, request_in, stage

ROLES = ["liaison", "other_liaison", "approver", "shifter", "admin", "both"]
CAN = {
    Actor.LIAISON: {"liaison", "both"},
    Actor.SIGNER: {"approver"},
    Actor.DECIDER: {"approver"},
    Actor.OPERATOR: {"approver", "both", "shifter"},
    Actor.OPERATOR_OR_PORTAL: {"approver", "both", "shifter"},
    Actor.LIAISON_OR_APPROVER: {"liaison", "both", "approver"},
}


#: What is not sent yet is the liaison's alone.
LIAISONS_ALONE = {(RequestState.DRAFT, Verb.CANCEL), (RequestState.DRAFT, Verb.SUPERSEDE)}


def made(verb, request, by, reason="because"):
    if verb is Verb.CHANGE:
        new = content(stages=(stage("other"),))
        return save_draft(
            request=request, content=new, version=request.version, by=by, at=AT, reason=reason
        )
    more = (
        {"successor": request.experiment.requests.exclude(pk=request.pk).first()}
        if verb == Verb.SUPERSEDE
        else {}
    )
    return MOVE_FUNCTIONS[verb](request=request, by=by, at=AT, reason=reason, **more)


@pytest.fixture
def both(nova):
    """Somebody who is liaison and approver, and made the request."""
    return person("two-hats", ("liaison", nova), ("approver", None))


@pytest.mark.parametrize("state", RequestState.values)
def test_moves_are_those_of_the_table(state, nova, both, request):
    second = person("opg-two", ("approver", None))
    obj = request_in(state, by=both, experiment=nova, approver=second)
    draft(both, nova)
    before = events_of(obj).count()
    for role, verb in product(ROLES, MOVE_FUNCTIONS):
        fresh, by = copy(obj), request.getfixturevalue(role)
        can = CAN[actor_of(verb)] - ({"approver"} if (state, verb) in LIAISONS_ALONE else set())
        if role not in can:
            with pytest.raises(NotAllowed):
                made(verb, fresh, by)
        elif not transitions_from(state, verb):
            with pytest.raises(InvalidTransition):
                made(verb, fresh, by)
    untouched = Request.objects.get(pk=obj.pk)
    assert (untouched.state, untouched.version, events_of(obj).count()) == (
        state,
        obj.version,
        before,
    )


@pytest.mark.parametrize("step", TRANSITIONS, ids=lambda t: f"{t.old}-{t.verb}-{t.new}")
def test_move_is_made_with_its_event(step, nova, liaison, approver):
    if step.guard == "held_from_there":
        obj = request_in(step.new, by=liaison, experiment=nova, approver=approver)
        made(Verb.HOLD, obj, approver)
    else:
        obj = request_in(step.old, by=liaison, experiment=nova, approver=approver)
    draft(liaison, nova)
    if step.guard == "output_is_good":
        pass_quality(obj, approver)
    by = liaison if step.actor in {Actor.LIAISON, Actor.LIAISON_OR_APPROVER} else approver
    if step.actor is Actor.PORTAL:
        apply_move(obj, step.verb, by=PORTAL, at=AT, reason=" because ")
    else:
        made(step.verb, obj, by, " because ")
    stored = Request.objects.get(pk=obj.pk)
    event = events_of(obj).filter(kind=f"request.{step.verb.name.lower()}").last()
    assert stored.state == (RequestState.QUEUED if step.verb is Verb.APPROVE else step.new)
    assert (event.old, event.new, event.reason) == (step.old, step.new, "because")
    assert event.actor == (PORTAL if step.actor is Actor.PORTAL else by.username)


def test_held_request_goes_back_to_where_it_was_and_nowhere_else(nova, liaison, approver):
    for state in (RequestState.QUEUED, RequestState.TESTING, RequestState.RUNNING):
        obj = request_in(state, by=liaison, experiment=nova, approver=approver)
        made(Verb.HOLD, obj, approver)
        assert [step.new for step in moves_for(approver, obj) if step.verb is Verb.RELEASE] == [
            state
        ]
        made(Verb.RELEASE, obj, approver)
        assert (obj.state, obj.held_from) == (state, "")


def test_successor_is_another_request_of_the_experiment(
    nova, dune, liaison, other_liaison, approver
):
    obj = request_in("queued", by=liaison, experiment=nova, approver=approver)
    for wrong in (None, obj, draft(other_liaison, dune)):
        with pytest.raises(InvalidFields, match="Choose another request of this experiment"):
            supersede_request(request=obj, by=liaison, at=AT, reason="x", successor=wrong)
    assert Request.objects.get(pk=obj.pk).state == "queued"


def test_request_that_went_bad_while_it_waited_is_given_back(nova, liaison):
    obj = draft(liaison, nova)
    submit_request(request=obj, by=liaison, at=AT)
    moves_module.check_request(request=obj, at=AT + timedelta(days=365))
    event = events_of(obj).last()
    assert (obj.state, event.actor, event.reason) == (
        "changes_requested",
        PORTAL,
        "deadline: The deadline is not in the future. Choose a date after 20 Nov 2027.",
    )


def test_task_checks_what_was_submitted_once(nova, liaison):
    obj = draft(liaison, nova)
    submit_request(request=obj, by=liaison, at=AT)
    check_waiting()
    check_waiting()
    check_request(request_id=obj.pk)
    assert [e.kind for e in events_of(obj)][1:] == [
        "request.submit",
        "request.check",
        "request.pass",
    ]


def test_every_pair_of_states_is_reached_by_at_most_one_verb():
    moves = [(t.old, t.new) for t in TRANSITIONS]
    assert len(moves) == len(set(moves))
    for verb in Verb:
        assert len({t.actor for t in TRANSITIONS if t.verb == verb}) == 1


def test_closing_check_that_cannot_be_loaded_is_in_the_way(nova, liaison, approver, monkeypatch):
    request = request_in("data_quality", by=liaison, experiment=nova, approver=approver)
    pass_quality(request, approver)
    broken = EntryPoint("broken", "no_such_module:check", CLOSING_CHECKS.group)
    monkeypatch.setattr(CLOSING_CHECKS, "problems", {})
    monkeypatch.setitem(CLOSING_CHECKS._found, "broken", broken)
    with pytest.raises(InvalidTransition, match="“broken” cannot be loaded"):
        MOVE_FUNCTIONS[Verb.DONE](request=request, by=approver, at=AT)
