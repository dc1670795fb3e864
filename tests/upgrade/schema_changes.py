"""What a schema lacks or demands, as the code of an earlier release sees it.

That code names the columns that it knows in each INSERT, UPDATE and SELECT, so it bears new tables,
and new columns that are filled without it.
"""

from dataclasses import dataclass

import psycopg

from tests.upgrade import databases

TABLES = """
    from pg_class as tables
    where relkind in ('r', 'p') and not relispartition
        and relnamespace = 'public'::regnamespace
"""
COLUMNS = f"""
select relname, attname, format_type(atttypid, atttypmod), not attnotnull,
    atthasdef or attidentity <> '' or attgenerated <> ''
from pg_attribute join (select oid, relname {TABLES}) as tables on attrelid = tables.oid
where attnum > 0 and not attisdropped
"""
# Checks, foreign keys and exclusions with their columns; unique indexes and triggers, which bind
# rows or statements as a whole, without.
RULES = f"""
with tables as (select oid, relname {TABLES})
select relname, conname, pg_get_constraintdef(pg_constraint.oid), array(
    select attname::text from pg_attribute where attrelid = conrelid and attnum = any(conkey)
)
from pg_constraint join tables on conrelid = tables.oid where contype in ('c', 'f', 'x')
union all
select relname, indexrelid::regclass::text, pg_get_indexdef(indexrelid), '{{}}'
from pg_index join tables on indrelid = tables.oid where indisunique
union all
select relname, tgname, pg_get_triggerdef(pg_trigger.oid), '{{}}'
from pg_trigger join tables on tgrelid = tables.oid where not tgisinternal
"""


@dataclass(frozen=True)
class Column:
    type: str
    is_nullable: bool
    has_default: bool


@dataclass(frozen=True)
class Rule:
    """A constraint, a unique index or a trigger."""

    definition: str
    columns: frozenset[str]


@dataclass(frozen=True)
class Schema:
    """Columns by table and name, and rules by table and name."""

    columns: dict[tuple[str, str], Column]
    rules: dict[tuple[str, str], Rule]

    def tables(self):
        return {table for table, _ in self.columns}


def read_schema(connection):
    """Return the schema of the database of this connection."""
    columns = {}
    for table, column, *facts in connection.execute(COLUMNS):
        columns[table, column] = Column(*facts)
    rules = {}
    for table, rule, definition, of_columns in connection.execute(RULES):
        rules[table, rule] = Rule(definition, frozenset(of_columns))
    return Schema(columns, rules)


def read_schema_of(name):
    """Return the schema of the database of this name."""
    with psycopg.connect(databases.url_of(name)) as connection:
        return read_schema(connection)


def find_changes(before, after):
    """Return what may break code that was written for the schema `before`."""
    gone = before.tables() - after.tables()
    changes = {f"{table} is gone" for table in gone}
    for (table, name), column in before.columns.items():
        if table not in gone:
            changes |= set(_changes_of(f"{table}.{name}", column, after.columns.get((table, name))))
    for (table, name), column in after.columns.items():
        is_new = table in before.tables() and (table, name) not in before.columns
        if is_new and not column.is_nullable and not column.has_default:
            changes.add(f"{table}.{name} is required")
    return changes | set(_new_rules(before, after))


def _changes_of(name, old, new):
    if new is None:
        yield f"{name} is gone"
        return
    if new.type != old.type:
        yield f"{name} is {new.type}, was {old.type}"
    if new.is_nullable and not old.is_nullable:
        yield f"{name} may be NULL"
    if old.is_nullable and not new.is_nullable:
        yield f"{name} must not be NULL"
    if old.has_default and not new.has_default:
        yield f"{name} has no default"


def _new_rules(before, after):
    """Yield rules on tables of before, but for those of new columns alone, which get defaults."""
    for (table, name), rule in after.rules.items():
        known = {column for column in rule.columns if (table, column) in before.columns}
        concerns_old_code = known or not rule.columns
        if (
            table in before.tables()
            and concerns_old_code
            and before.rules.get((table, name)) != rule
        ):
            yield f"{table} has {name}"
