from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.core.management.base import CommandError
from django.core.management.commands import migrate
from django.db.migrations.state import ModelState, ProjectState
from django.db.migrations.utils import field_is_referenced
from django.db.models import Field

from apps.core.domain.schema import find_faults, find_refusal, summarise

#: Arguments of a field that the schema does not depend on.
WORDS = ("help_text", "verbose_name")


class Command(migrate.Command):
    """Django's `migrate`, which rejects the database of another version.

    With `--check`, it also compares the schema with the models.
    """

    def get_check_kwargs(self, options: dict[str, Any]) -> Any:
        """Skip the checks of the database: they would report what is about to be migrated."""
        return super().get_check_kwargs(options) | {"databases": None}

    def handle(self, *args: Any, **options: Any) -> None:
        """Migrate. Raises `CommandError` for a database that this version cannot migrate."""
        if refusal := find_refusal(database=options["database"], prune=options["prune"]):
            raise CommandError(refusal)
        if options["check_unapplied"] and not (options["app_label"] or options["plan"]):
            faults = find_faults(database=options["database"])
            if faults:
                raise CommandError(summarise(faults))
        with rendered_once():
            super().handle(*args, **options)


@contextmanager
def rendered_once() -> Iterator[None]:
    """Render only the models that a statement of a migration depends on.

    When a field or model is added, Django renders all models related to it in any way. These are
    nearly all, and rendering them takes most of the time of a migration. The statements need only
    the changed model: others refer to it by name, and to its primary key, which does not change.
    For new indexes, constraints, options and labels of fields, nothing is rendered.

    All models are rendered again for `RunPython`, and after a change that other models depend on.
    """
    changed = {
        "add_index": _keep_rendered,
        "add_constraint": _keep_rendered,
        "remove_index": _keep_rendered,
        "remove_constraint": _keep_rendered,
        "alter_model_options": _keep_rendered,
        "add_model": _render_new_model,
        "add_field": _render_model_alone,
        "alter_field": _render_altered,
        "rename_field": _render_renamed,
        "reload_model": _render_all_later,
        "reload_models": _render_all_later,
    }
    django = {name: getattr(ProjectState, name) for name in changed}
    for name, change in changed.items():
        setattr(ProjectState, name, change(django[name]))
    try:
        yield
    finally:
        for name, method in django.items():
            setattr(ProjectState, name, method)


Method = Callable[..., None]


def _keep_rendered(change: Method) -> Method:
    """Return a function that changes the state of the models, but not the rendered ones."""

    def change_state(state: ProjectState, *arguments: Any) -> None:
        rendered = state.__dict__.pop("apps", None)
        change(state, *arguments)
        if rendered is not None:
            state.__dict__["apps"] = rendered

    return change_state


def _render_model_alone(change: Method) -> Method:
    """Return a function that changes a model, and renders no other one."""
    change_state = _keep_rendered(change)

    def change_and_render(
        state: ProjectState, app_label: str, model_name: str, *arguments: Any
    ) -> None:
        change_state(state, app_label, model_name, *arguments)
        _render(state, app_label, model_name)

    return change_and_render


def _render_new_model(add: Method) -> Method:
    """Return a function that adds a model, and renders no other one."""
    change_state = _keep_rendered(add)

    def add_and_render(state: ProjectState, model_state: ModelState) -> None:
        change_state(state, model_state)
        _render(state, model_state.app_label, model_state.name_lower)

    return add_and_render


def _render_altered(alter: Method) -> Method:
    """Return a function that alters a field, and renders what depends on it."""

    def alter_and_render(
        state: ProjectState, app_label: str, model_name: str, name: str, *arguments: Any
    ) -> None:
        field = arguments[0]
        before = state.models[app_label, model_name].fields[name]
        if _without_words(before) == _without_words(field):
            change = _keep_rendered(alter)
        elif _others_depend_on(state, app_label, model_name, name):
            change = alter
        else:
            change = _render_model_alone(alter)
        change(state, app_label, model_name, name, *arguments)

    return alter_and_render


def _render_renamed(rename: Method) -> Method:
    """Return a function that renames a field, and renders what depends on it."""

    def rename_and_render(
        state: ProjectState, app_label: str, model_name: str, old_name: str, new_name: str
    ) -> None:
        others = _others_depend_on(state, app_label, model_name, old_name)
        change = rename if others else _render_model_alone(rename)
        change(state, app_label, model_name, old_name, new_name)

    return rename_and_render


def _render_all_later(_reload: Method) -> Method:
    """Return a function that drops all rendered models; they are rendered again on demand."""

    def drop_rendered(state: ProjectState, *_arguments: Any, **_options: Any) -> None:
        state.__dict__.pop("apps", None)

    return drop_rendered


def _render(state: ProjectState, app_label: str, model_name: str) -> None:
    """Render a model again, if models are rendered, and remember that no other one was."""
    if "apps" in state.__dict__:
        state.is_delayed = True
        state._reload({(app_label, model_name)})  # type: ignore[attr-defined]


def _others_depend_on(state: ProjectState, app_label: str, model_name: str, name: str) -> bool:
    """Return whether other models may refer to this field."""
    field = state.models[app_label, model_name].fields[name]
    return field.primary_key or bool(
        field_is_referenced(state, (app_label, model_name), (name, field))
    )


def _without_words(field: "Field[Any, Any]") -> tuple[Any, ...]:
    """Return what the migration of a field would write, but for its words."""
    _, path, arguments, options = field.deconstruct()
    options = {name: value for name, value in options.items() if name not in WORDS}
    return path, arguments, options
