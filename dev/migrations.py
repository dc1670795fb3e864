"""Checks of migrations: none is missing, and none keeps the release before from working beside it.

`python -m dev.migrations` prints a sentence for each fault, and fails if there is one.

Code of release n runs on schema n + 1 (docs/adr/0050-rolling-upgrades.md). Its INSERTs do not name
the columns of release n + 1, so each needs a default in the database or NULL. What it needs must
stay. `tests/upgrade` compares whole schemas; this check reads the operations alone, in seconds.
"""

import gzip
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.db.migrations import Migration, operations
from django.db.migrations.state import ProjectState

from dev.messages import say
from dev.processes import ROOT

RELEASES = ROOT / "tests/upgrade/releases"
_ADVICE = "list it with the reason in apps/core/breaking_migrations.py"
#: Operations after which code of the release before looks for what is gone.
REMOVALS = (
    operations.RemoveField,
    operations.RenameField,
    operations.DeleteModel,
    operations.RenameModel,
    operations.AlterModelTable,
)

Key = tuple[str, str]


def read_released_migrations(dump: Path) -> set[Key]:
    """Return the migrations, by app and name, that the database of a release's dump has."""
    lines = gzip.decompress(dump.read_bytes()).decode().splitlines()
    start = next(
        number
        for number, line in enumerate(lines)
        if line.startswith("COPY public.django_migrations ")
    )
    released = set()
    for line in lines[start + 1 :]:
        if line == r"\.":
            break
        _, app_label, name, _ = line.split("\t")
        released.add((app_label, name))
    return released


def newest_dump() -> Path:
    """Return the dump of the newest release."""
    dumps = RELEASES.glob("*.sql.gz")
    return max(dumps, key=lambda dump: [int(number) for number in re.findall(r"\d+", dump.name)])


def find_faults(
    migration: Migration, *, released: ProjectState, present: ProjectState
) -> Iterator[str]:
    """Yield what code of the release does not bear, a sentence for each operation.

    `released` are the models of that release, `present` those after all migrations.
    """
    for operation in _database_operations(migration.operations):
        model = getattr(operation, "model_name", "") or getattr(operation, "name", "")
        if isinstance(operation, operations.RenameModel):
            model = operation.old_name
        key = (migration.app_label, str(model).lower())
        if key not in released.models:
            continue
        at = f"{migration.app_label}.{migration.name}"
        if isinstance(operation, operations.AddField) and _is_required(operation, present, key):
            yield (
                f"{at} adds the required column {operation.name} to {operation.model_name}, which "
                "the release before does not fill: give the field a db_default."
            )
        elif isinstance(operation, REMOVALS):
            yield (
                f"{at} does what the release before does not bear ({operation.describe()}): "
                f"do it a release later, or {_ADVICE}."
            )


def _database_operations(listed: Any) -> Iterator[Any]:
    for operation in listed:
        if isinstance(operation, operations.SeparateDatabaseAndState):
            yield from _database_operations(operation.database_operations)
        else:
            yield operation


def _is_required(operation: operations.AddField, present: ProjectState, key: Key) -> bool:
    """Return whether an INSERT must name the column; a later migration may have added a default."""
    model = present.models.get(key)
    field: Any = operation.field
    if model is not None:
        field = model.fields.get(operation.name, field)
    if field.generated:
        return False
    return not (field.null or field.many_to_many or field.has_db_default())


def find_all_faults() -> list[str]:
    """Return the faults of the project's migrations that the newest release does not have."""
    from django.db.migrations.loader import MigrationLoader

    from apps.core.breaking_migrations import REVIEWED_MIGRATIONS

    loader = MigrationLoader(None)
    known = read_released_migrations(newest_dump())
    released = loader.project_state([key for key in loader.graph.nodes if key in known])
    present = loader.project_state()
    reviewed = {(migration.app_label, migration.name) for migration in REVIEWED_MIGRATIONS}
    faults: list[str] = []
    for key, migration in sorted(loader.disk_migrations.items()):
        if key not in known | reviewed and migration.__module__.startswith("apps."):
            faults += find_faults(migration, released=released, present=present)
    return faults


def main() -> None:
    """Run both checks. Exits with 1 if migrations are missing or have faults."""
    import django
    from django.core.management import call_command

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "opsportal.settings")
    django.setup()
    call_command("makemigrations", check_changes=True, dry_run=True)
    faults = find_all_faults()
    for fault in faults:
        say(fault)
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
