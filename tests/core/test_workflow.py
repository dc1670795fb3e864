"""Compare-and-set by a table."""

import pytest

from apps.core.domain.workflow import move
from apps.core.errors import InvalidTransition, StaleState
from apps.core.models import Heartbeat

TABLE = {"open": frozenset({"shut"}), "shut": frozenset()}


@pytest.fixture
def door(db, at):
    return Heartbeat.objects.create(name="open", at=at)


def test_move_changes_row_and_object(door):
    assert move(door, to="shut", transitions=TABLE, field="name", detail={"by": "x"}) == "open"
    assert (door.name, door.detail) == ("shut", {"by": "x"})
    door.refresh_from_db()
    assert (door.name, door.detail) == ("shut", {"by": "x"})


def test_move_not_in_the_table_is_refused(door):
    door.name = "shut"
    with pytest.raises(InvalidTransition, match="is shut, so it cannot become open"):
        move(door, to="open", transitions=TABLE, field="name")


def test_second_of_two_is_told_and_changes_nothing(door):
    other = Heartbeat.objects.get(pk=door.pk)
    move(door, to="shut", transitions=TABLE, field="name", detail={"by": "first"})
    with pytest.raises(StaleState, match="changed by another user"):
        move(other, to="shut", transitions=TABLE, field="name", detail={"by": "second"})
    door.refresh_from_db()
    assert door.detail == {"by": "first"}
