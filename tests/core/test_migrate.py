"""`migrate` renders models again only for changes that statements depend on."""

import pytest
from django.db import models
from django.db.migrations import operations
from django.db.migrations.state import ProjectState

from apps.core.management.commands.migrate import rendered_once


@pytest.fixture
def state():
    """A state with one rendered model."""
    fields = [
        ("id", models.BigAutoField(primary_key=True)),
        ("name", models.CharField(max_length=10)),
    ]
    made = ProjectState()
    operations.CreateModel("Thing", fields).state_forwards("app", made)
    made.apps.get_model("app", "Thing")
    return made


def test_words_indexes_and_constraints_render_nothing(state):
    rendered = state.apps.get_model("app", "Thing")
    index = models.Index(fields=["name"], name="by_name")
    constraint = models.UniqueConstraint(fields=["name"], name="name_once")
    worded = models.CharField(max_length=10, help_text="What it is called.")
    with rendered_once():
        operations.AlterField("thing", "name", worded).state_forwards("app", state)
        operations.AddIndex("thing", index).state_forwards("app", state)
        operations.AddConstraint("thing", constraint).state_forwards("app", state)
    assert state.apps.get_model("app", "Thing") is rendered
    model_state = state.models["app", "thing"]
    assert model_state.fields["name"].help_text == "What it is called."
    assert model_state.get_index_by_name("by_name") == index
    assert model_state.get_constraint_by_name("name_once") == constraint


def test_other_changes_render_the_model(state):
    longer = models.CharField(max_length=20, help_text="What it is called.")
    with rendered_once():
        operations.AlterField("thing", "name", longer).state_forwards("app", state)
    field = state.apps.get_model("app", "Thing")._meta.get_field("name")
    assert field.max_length == 20


def test_django_is_as_before_afterwards(state):
    before = (ProjectState.add_index, ProjectState.add_constraint, ProjectState.alter_field)
    with pytest.raises(RuntimeError), rendered_once():
        raise RuntimeError
    after = (ProjectState.add_index, ProjectState.add_constraint, ProjectState.alter_field)
    assert after == before
