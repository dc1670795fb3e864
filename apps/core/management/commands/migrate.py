from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.core.management.base import CommandError
from django.core.management.commands import migrate
from django.db.migrations.state import ProjectState
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
    """Do not render models again for new indexes and constraints, nor for words of fields.

    Django renders a model and all related ones for each of these changes, which takes half of the
    time of all migrations. Until something else renders a model, it keeps its former words, indexes
    and constraints, and no statement depends on them.
    """
    add_index = ProjectState.add_index
    add_constraint = ProjectState.add_constraint
    alter_field = ProjectState.alter_field

    def alter(
        state: ProjectState,
        app_label: str,
        model_name: str,
        name: str,
        field: "Field[Any, Any]",
        preserve_default: bool,
    ) -> None:
        before = state.models[app_label, model_name].fields[name]
        only_words = _without_words(before) == _without_words(field)
        change = _keep_rendered(alter_field) if only_words else alter_field
        change(state, app_label, model_name, name, field, preserve_default)

    ProjectState.add_index = _keep_rendered(add_index)  # type: ignore[method-assign]
    ProjectState.add_constraint = _keep_rendered(add_constraint)  # type: ignore[method-assign]
    ProjectState.alter_field = alter  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        ProjectState.add_index = add_index  # type: ignore[method-assign]
        ProjectState.add_constraint = add_constraint  # type: ignore[method-assign]
        ProjectState.alter_field = alter_field  # type: ignore[method-assign]


def _keep_rendered(change: Callable[..., None]) -> Callable[..., None]:
    """Return a function that changes the state of the models, but not the rendered ones."""

    def change_state(state: ProjectState, *arguments: Any) -> None:
        rendered = state.__dict__.pop("apps", None)
        change(state, *arguments)
        if rendered is not None:
            state.__dict__["apps"] = rendered

    return change_state


def _without_words(field: "Field[Any, Any]") -> tuple[Any, ...]:
    """Return what the migration of a field would write, but for its words."""
    _, path, arguments, options = field.deconstruct()
    options = {name: value for name, value in options.items() if name not in WORDS}
    return path, arguments, options
