"""The whole matrix of state, verb and role against the declared table."""

import pytest

from apps.core.errors import InvalidTransition, NotAllowed
from apps.core.selectors import events_of
from apps.production import services
from apps.production.enums import TRANSITIONS, RequestState, Verb, Who, actor_of, transition
from apps.production.models import Request
from tests.people import person
from tests.production.written import AT, request_in

ROLES = ["liaison", "other_liaison", "approver", "shifter", "admin", "both"]
CAN = {Who.LIAISON: {"liaison", "both"}, Who.APPROVER: {"approver"}}


@pytest.fixture
def both(nova):
    """Somebody who is liaison and approver, and made the request."""
    return person("two-hats", ("liaison", nova), ("approver", None))


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("state", RequestState.values)
def test_moves_are_those_of_the_table(state, role, nova, both, request):
    by = request.getfixturevalue(role)
    second = person("opg-two", ("approver", None))
    obj = request_in(state, by=both, experiment=nova, approver=second)
    before = events_of(obj).count()
    for verb in Verb:
        fresh = Request.objects.get(pk=obj.pk)
        if role not in CAN[actor_of(verb)]:
            with pytest.raises(NotAllowed):
                services.SERVICES[verb](request=fresh, by=by, at=AT, reason="because")
        elif transition(state, verb) is None:
            with pytest.raises(InvalidTransition):
                services.SERVICES[verb](request=fresh, by=by, at=AT, reason="because")
    untouched = Request.objects.get(pk=obj.pk)
    assert (untouched.state, untouched.version, events_of(obj).count()) == (state, obj.version, before)


@pytest.mark.parametrize("step", TRANSITIONS, ids=lambda t: f"{t.old}-{t.verb}")
def test_move_is_made_with_its_event(step, nova, liaison, approver):
    obj = request_in(step.old, by=liaison, experiment=nova, approver=approver)
    by = liaison if step.who is Who.LIAISON else approver
    services.SERVICES[step.verb](request=obj, by=by, at=AT, reason=" because ")
    stored = Request.objects.get(pk=obj.pk)
    event = events_of(obj).last()
    assert stored.state == step.new
    assert (event.old, event.new, event.reason, event.actor) == (step.old, step.new, "because", by.username)


def test_every_pair_of_states_is_reached_by_at_most_one_verb():
    moves = [(t.old, t.new) for t in TRANSITIONS]
    assert len(moves) == len(set(moves))
    for verb in Verb:
        assert len({t.who for t in TRANSITIONS if t.verb == verb}) == 1
