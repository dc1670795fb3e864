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


@pytest.fixture
def related(state):
    """The state, with a second model that refers to the first."""
    owned = [
        ("id", models.BigAutoField(primary_key=True)),
        ("thing", models.ForeignKey("app.Thing", models.CASCADE)),
    ]
    operations.CreateModel("Part", owned).state_forwards("app", state)
    state.apps.get_model("app", "Part")
    return state


def test_new_fields_and_models_render_no_other_model(related):
    thing = related.apps.get_model("app", "Thing")
    part = related.apps.get_model("app", "Part")
    other = [
        ("id", models.BigAutoField(primary_key=True)),
        ("thing", models.ForeignKey("app.Thing", models.CASCADE)),
    ]
    with rendered_once():
        operations.AddField("part", "size", models.IntegerField(null=True)).state_forwards(
            "app", related
        )
        operations.CreateModel("Other", other).state_forwards("app", related)
    assert related.apps.get_model("app", "Thing") is thing
    changed = related.apps.get_model("app", "Part")
    assert changed is not part
    assert changed._meta.get_field("size").null
    added = related.apps.get_model("app", "Other")
    assert added._meta.get_field("thing").remote_field.model is thing
    assert {relation.related_model for relation in thing._meta.related_objects} == {changed, added}


def test_python_of_a_migration_gets_models_that_fit_each_other(related):
    with rendered_once():
        operations.AddField("thing", "size", models.IntegerField(null=True)).state_forwards(
            "app", related
        )
        related.clear_delayed_apps_cache()
    part = related.apps.get_model("app", "Part")
    thing = related.apps.get_model("app", "Thing")
    assert part._meta.get_field("thing").remote_field.model is thing


def test_renamed_field_renders_its_model_alone(related):
    part = related.apps.get_model("app", "Part")
    with rendered_once():
        operations.RenameField("thing", "name", "title").state_forwards("app", related)
    assert related.apps.get_model("app", "Part") is part
    assert related.apps.get_model("app", "Thing")._meta.get_field("title").max_length == 10


@pytest.mark.parametrize(
    "change",
    [
        operations.AlterField("thing", "id", models.UUIDField(primary_key=True)),
        operations.RenameField("thing", "id", "number"),
        operations.RemoveField("part", "thing"),
        operations.RenameModel("Thing", "Item"),
    ],
    ids=["key", "name of the key", "relation", "model"],
)
def test_changes_that_others_depend_on_render_all_of_them(related, change):
    before = {model._meta.model_name: model for model in related.apps.get_models()}
    with rendered_once():
        change.state_forwards("app", related)
        after = {model._meta.model_name: model for model in related.apps.get_models()}
    assert not set(before.values()) & set(after.values())
    relation = [field for field in after["part"]._meta.fields if field.is_relation]
    for field in relation:
        assert field.remote_field.model in after.values()
        assert (
            field.target_field.get_internal_type()
            == field.remote_field.model._meta.pk.get_internal_type()
        )


def test_django_is_as_before_afterwards():
    before = dict(vars(ProjectState))
    with pytest.raises(RuntimeError), rendered_once():
        raise RuntimeError
    assert dict(vars(ProjectState)) == before
