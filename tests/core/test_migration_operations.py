"""`CreateModels`: models that refer to each other in a circle, forwards,
backwards and written down.
"""

import pytest
from django.db import IntegrityError, connection, migrations, models
from django.db.migrations.state import ModelState, ProjectState
from django.db.migrations.writer import MigrationWriter, OperationWriter

from apps.core.migration_operations import CreateModels

ID = ("id", models.BigAutoField(primary_key=True))


@pytest.fixture
def operation():
    """A ship and its captain, who refer to each other; the ship has an index and a constraint."""
    ship = migrations.CreateModel(
        "Ship",
        [
            ID,
            ("name", models.TextField()),
            ("captain", models.ForeignKey("fleet.Captain", models.CASCADE)),
        ],
        options={
            "indexes": [models.Index(fields=["name"], name="ship_name")],
            "constraints": [
                models.CheckConstraint(condition=~models.Q(name=""), name="ship_named")
            ],
        },
    )
    captain = migrations.CreateModel(
        "Captain", [ID, ("ship", models.ForeignKey("fleet.Ship", models.CASCADE, null=True))]
    )
    return CreateModels([ship, captain])


@pytest.fixture
def renders(monkeypatch):
    """The names of the models that were rendered, in order."""
    names = []
    render = ModelState.render
    monkeypatch.setattr(
        ModelState, "render", lambda state, apps: names.append(state.name) or render(state, apps)
    )
    return names


def migrate(operation) -> tuple[ProjectState, ProjectState]:
    """Apply the operation; return the states before and after it."""
    before = ProjectState()
    after = before.clone()
    operation.state_forwards("fleet", after)
    with connection.schema_editor() as editor:
        operation.database_forwards("fleet", editor, before, after)
    return before, after


def tables() -> set[str]:
    return {name for name in connection.introspection.table_names() if name.startswith("fleet_")}


@pytest.mark.django_db(transaction=True)
def test_models_in_a_circle_are_created_and_removed(operation):
    before, after = migrate(operation)
    try:
        captain = after.apps.get_model("fleet", "Captain").objects.create()
        ship_model = after.apps.get_model("fleet", "Ship")
        ship_model.objects.create(name="Argo", captain=captain)
        with connection.cursor() as cursor:
            constraints = connection.introspection.get_constraints(cursor, "fleet_ship")
        assert {"ship_name", "ship_named"} <= set(constraints)
        with pytest.raises(IntegrityError):
            ship_model.objects.create(name="Hesperus", captain_id=captain.id + 1)
    finally:
        with connection.schema_editor() as editor:
            operation.database_backwards("fleet", editor, after, before)
    assert tables() == set()


def test_each_model_is_rendered_once(operation, renders):
    state = ProjectState()
    assert list(state.apps.get_models()) == []  # a migration renders the state before it begins
    operation.state_forwards("fleet", state)
    assert [model.__name__ for model in state.apps.get_models()] == ["Ship", "Captain"]
    assert renders == ["Ship", "Captain"]


def test_describes_what_it_creates(operation):
    assert operation.formatted_description() == "+ Create models Ship, Captain"


def test_can_be_written_and_read(operation):
    text, imports = OperationWriter(operation, indentation=0).serialize()
    names = {"models": models, "migrations": migrations}
    for statement in imports:
        exec(statement, names)
    again = eval(text.rstrip(","), names)
    assert MigrationWriter.serialize(again) == MigrationWriter.serialize(operation)
