"""The schema of the database: applied migrations, and differences from the models."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.apps import apps
from django.core import checks
from django.db import connections, models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.loader import MigrationLoader

from opsportal.version import VERSION

#: Maximum differences or migrations that are listed; the others are counted.
NAMED = 5
#: Types that PostgreSQL reports under another name than Django uses.
ALIASES = {"time": "time without time zone", "varchar": "character varying"}

# Columns, then names of valid indexes and of constraints. A required column must be set by every
# insert.
SCHEMA = """
with tables as (
    select oid, relname from pg_class
    where relname = any(%s) and relkind in ('r', 'p') and pg_table_is_visible(oid)
)
select relname, 'column', attname, format_type(atttypid, atttypmod), not attnotnull,
       attnotnull and not atthasdef and attidentity = ''
from tables join pg_attribute on attrelid = tables.oid
where attnum > 0 and not attisdropped
union all
select tables.relname, 'name', index.relname, null, null, null
from tables join pg_index on indrelid = tables.oid join pg_class as index on index.oid = indexrelid
where indisvalid
union all
select relname, 'name', conname, null, null, null
from tables join pg_constraint on conrelid = tables.oid
"""


@dataclass(frozen=True)
class Column:
    """A column of the database. A required column has neither NULL nor a default."""

    type: str
    is_nullable: bool
    is_required: bool


@dataclass
class SchemaTable:
    """A table of the database: columns by name, and the names of indexes and constraints."""

    columns: dict[str, Column] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)


def find_refusal(*, database: str, prune: bool = False) -> str | None:
    """Return why this version cannot migrate the database, or None.

    With `prune`, unknown migrations are accepted.
    """
    connection = connections[database]
    loader = MigrationLoader(connection)
    labels = {config.label for config in _portal_apps()}
    applied = sorted(migration for migration in loader.applied_migrations if migration[0] in labels)
    if applied and not _was_created_since_020(connection):
        return (
            "This database was created by opsportal 0.1.0, which was never released and "
            "cannot be upgraded: "
            "migrate a new, empty database (with make run, remove the directory VAR or choose "
            "another one)."
        )

    known = set(loader.disk_migrations)
    for migration in loader.disk_migrations.values():
        known.update(migration.replaces)
    unknown = [name for name in applied if name not in known]
    if unknown and not prune:
        return (
            f"This database has migrations that opsportal {VERSION} does not know "
            f"({_name_some(unknown)}): "
            "install the version that applied them, or restore a dump of this version."
        )
    return None


def _was_created_since_020(connection: BaseDatabaseWrapper) -> bool:
    """Return whether the first migration of `core` is the one of 0.2.0.

    It created the function that is looked up here.
    """
    with connection.cursor() as cursor:
        cursor.execute("select to_regprocedure('opsportal_first_version()') is not null")
        return bool(cursor.fetchone()[0])


def find_faults(*, database: str) -> list[str]:
    """Return why this version cannot work on the database.

    These are unapplied migrations or, if there are none, differences from the models.
    """
    connection = connections[database]
    loader = MigrationLoader(connection)
    unapplied = sorted(set(loader.graph.nodes) - set(loader.applied_migrations))
    if unapplied:
        return [f"Migrations are not applied ({_name_some(unapplied)}): run manage.py migrate."]

    models_of_apps = []
    for config in _portal_apps():
        for model in config.get_models(include_auto_created=True):
            if model._meta.managed and not model._meta.proxy:
                models_of_apps.append(model)

    tables = _read_tables(connection, [model._meta.db_table for model in models_of_apps])
    faults: list[str] = []
    for model in models_of_apps:
        faults += _compare(connection, model, tables)
    return faults


def _portal_apps() -> list[Any]:
    return [config for config in apps.get_app_configs() if config.name.startswith("apps.")]


def _name_some(migrations: Sequence[tuple[str, str]]) -> str:
    return summarise([f"{app_label}.{name}" for app_label, name in migrations], separator=", ")


def summarise(texts: Sequence[str], separator: str = "; ") -> str:
    """Return the first texts joined into one line, and the number of the others."""
    others = len(texts) - NAMED
    return separator.join([*texts[:NAMED], *([f"{others} more"] if others > 0 else [])])


def _read_tables(connection: BaseDatabaseWrapper, names: list[str]) -> dict[str, SchemaTable]:
    """Return the tables that exist, in one query."""
    tables: dict[str, SchemaTable] = {}
    with connection.cursor() as cursor:
        cursor.execute(SCHEMA, [names])
        for table_name, kind, name, type_, is_nullable, is_required in cursor.fetchall():
            table = tables.setdefault(table_name, SchemaTable())
            if kind == "column":
                table.columns[name] = Column(type_, is_nullable, is_required)
            else:
                table.names.add(name)
    return tables


def _compare(
    connection: BaseDatabaseWrapper, model: type[models.Model], tables: dict[str, SchemaTable]
) -> Iterator[str]:
    """Yield each difference between a model and its table."""
    name = model._meta.db_table
    if name not in tables:
        yield f"table {name} is missing"
        return

    table = tables[name]
    fields: list[Any] = [
        model_field for model_field in model._meta.local_concrete_fields if model_field.column
    ]
    for model_field in fields:
        yield from _compare_column(
            connection, name, model_field, table.columns.get(model_field.column)
        )
    yield from _unknown_columns(name, table, {model_field.column for model_field in fields})

    for index in model._meta.indexes:
        if index.name not in table.names:
            yield f"table {name} lacks index {index.name}"
    for constraint in model._meta.constraints:
        if constraint.name not in table.names:
            yield f"table {name} lacks constraint {constraint.name}"


def _compare_column(
    connection: BaseDatabaseWrapper, table_name: str, model_field: Any, column: Column | None
) -> Iterator[str]:
    if column is None:
        yield f"table {table_name} lacks column {model_field.column}"
        return
    type_ = _canonical_type(model_field.db_type(connection))
    if column.type != type_:
        yield f"column {table_name}.{model_field.column} is {column.type}, not {type_}"
    # Django makes no generated column NOT NULL.
    if column.is_nullable and not (model_field.null or model_field.generated):
        yield f"column {table_name}.{model_field.column} lacks NOT NULL"
    if model_field.null and not column.is_nullable:
        yield f"column {table_name}.{model_field.column} must not be NOT NULL"


def _canonical_type(type_: str) -> str:
    """Return a Django column type as PostgreSQL writes it."""
    name = re.split(r"\W", type_, maxsplit=1)[0]
    modifiers = type_.removeprefix(name).replace(", ", ",")
    return ALIASES.get(name, name) + modifiers


def _unknown_columns(table_name: str, table: SchemaTable, known: set[str]) -> Iterator[str]:
    """Yield required columns that no model field fills."""
    for name, column in table.columns.items():
        if column.is_required and name not in known:
            yield f"table {table_name} requires column {name}, which this version does not fill"


def check_schema(*, databases: Iterable[str] | None = None, **_: Any) -> list[checks.CheckMessage]:
    """Report why this version cannot work on the databases given to `check --database`."""
    errors: list[checks.CheckMessage] = []
    for database in databases or ():
        for fault in find_faults(database=database):
            errors.append(checks.Error(fault, obj=database, id="opsportal.E001"))
    return errors
