"""The schema against the models, and databases of other versions: `/readyz`, `migrate`,
`check --database`.
"""

import pytest
from django.apps import apps
from django.core import checks
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder

from apps.core.domain import health
from apps.core.domain.schema import find_faults, find_refusal, summarise
from opsportal.version import VERSION

pytestmark = pytest.mark.django_db

OF_010 = "drop function opsportal_first_version()"
LONGER = "alter table core_heartbeat alter name type varchar(101)"
LONGER_FAULT = "column core_heartbeat.name is character varying(101), not character varying(100)"


def models_of_portal():
    configs = [config for config in apps.get_app_configs() if config.name.startswith("apps.")]
    return [model for config in configs for model in config.get_models(include_auto_created=True)]


def execute(*statements: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("; ".join(statements))


def faults() -> list[str]:
    return find_faults(database="default")


def test_migrated_database_fits_by_three_queries(django_assert_num_queries):
    with django_assert_num_queries(3):
        assert faults() == []


@pytest.mark.parametrize(
    ("statement", "fault"),
    [
        (LONGER, LONGER_FAULT),
        (
            "alter table core_event alter at type timestamp",
            "column core_event.at is timestamp without time zone, not timestamp with time zone",
        ),
        (
            "alter table core_delivery alter attempts type bigint",
            "column core_delivery.attempts is bigint, not integer",
        ),
        (
            "alter table notifications_preferences alter quiet_from type text",
            "column notifications_preferences.quiet_from is text, not time without time zone",
        ),
        (
            "alter table core_event alter kind drop not null",
            "column core_event.kind lacks NOT NULL",
        ),
        (
            "alter table notifications_preferences alter quiet_from set not null",
            "column notifications_preferences.quiet_from must not be NOT NULL",
        ),
        (
            "alter table core_delivery drop subscriber cascade",
            "table core_delivery lacks column subscriber",
        ),
        (
            "alter table core_heartbeat add host text not null",
            "table core_heartbeat requires column host, which this version does not fill",
        ),
        ("drop index delivery_waiting", "table core_delivery lacks index delivery_waiting"),
        (
            "alter table core_delivery drop constraint delivery_once",
            "table core_delivery lacks constraint delivery_once",
        ),
        ("drop table core_delivery", "table core_delivery is missing"),
    ],
)
def test_difference_is_named(statement, fault):
    execute(statement)
    assert fault in faults()


@pytest.mark.parametrize(
    "harmless",
    [
        "alter table core_heartbeat add host text",
        "alter table core_heartbeat add host text not null default ''",
        "create index more on core_heartbeat (at)",
        "create table more (id int not null)",
    ],
)
def test_additions_that_need_nothing_of_the_portal_are_no_faults(harmless):
    execute(harmless)
    assert faults() == []


def test_every_missing_index_and_constraint_is_named():
    statements, expected = [], set()
    for model in models_of_portal():
        table = model._meta.db_table
        for index in model._meta.indexes:
            statements.append(f"drop index {index.name}")
            expected.add(f"table {table} lacks index {index.name}")
        for constraint in model._meta.constraints:
            # A unique constraint with a condition or an expression is an index.
            statements.append(
                f"alter table {table} drop constraint if exists {constraint.name} cascade"
            )
            statements.append(f"drop index if exists {constraint.name}")
            expected.add(f"table {table} lacks constraint {constraint.name}")
    execute(*statements)
    assert set(faults()) == expected


def test_every_missing_column_is_named():
    columns = [
        (model._meta.db_table, field.column)
        for model in models_of_portal()
        for field in model._meta.local_concrete_fields
    ]
    execute(
        *[
            f'alter table {table} rename column "{column}" to "{column}_old"'
            for table, column in columns
        ]
    )
    missing = {f"table {table} lacks column {column}" for table, column in columns}
    assert {fault for fault in faults() if "requires column" not in fault} == missing


def test_every_missing_table_is_named():
    tables = [model._meta.db_table for model in models_of_portal()]
    execute(f"drop table {', '.join(tables)} cascade")
    assert faults() == [f"table {table} is missing" for table in tables]


def test_migrations_that_are_not_applied_are_reported_first():
    MigrationRecorder(connection).record_unapplied("jobs", "0001_initial")
    execute(LONGER)
    assert faults() == ["Migrations are not applied (jobs.0001_initial): run manage.py migrate."]


def test_many_faults_are_counted():
    assert summarise(["a", "b", "c", "d", "e"]) == "a; b; c; d; e"
    assert summarise(["a", "b", "c", "d", "e", "f", "g"]) == "a; b; c; d; e; 2 more"


# -- /readyz


@pytest.fixture
def readyz(client, monkeypatch):
    """Ask `/readyz` in a process that has not compared the schema yet,
    for the check of the schema.
    """
    monkeypatch.setattr(health, "_matching_schemas", set())

    def ask() -> tuple[int, str]:
        response = client.get("/readyz")
        details = {check["name"]: check["detail"] for check in response.json()["checks"]}
        return response.status_code, details["schema"]

    return ask


def test_readyz_names_a_difference_until_it_is_gone(readyz):
    execute(LONGER)
    assert readyz() == (503, LONGER_FAULT)
    assert readyz() == (503, LONGER_FAULT)
    execute("alter table core_heartbeat alter name type varchar(100)")
    assert readyz() == (200, "ok")


def test_readyz_compares_a_schema_that_fits_only_once(readyz, django_assert_num_queries):
    assert readyz() == (200, "ok")
    with django_assert_num_queries(1):
        assert readyz() == (200, "ok")


# -- manage.py check and migrate


def test_check_of_the_database_names_a_difference():
    execute(LONGER)
    assert LONGER_FAULT not in [message.msg for message in checks.run_checks()]
    assert LONGER_FAULT in [message.msg for message in checks.run_checks(databases=["default"])]


def test_migrate_check_names_a_difference():
    call_command("migrate", "--check")
    execute(LONGER)
    with pytest.raises(CommandError) as refusal:
        call_command("migrate", "--check")
    assert str(refusal.value) == LONGER_FAULT


def test_migrate_runs_the_checks_but_not_those_of_what_it_changes(capsys):
    execute(LONGER)
    call_command("migrate", skip_checks=False)
    assert "No migrations to apply" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [[], ["--plan"], ["--check"], ["--database", "default"], ["--fake"], ["jobs", "zero"]],
)
def test_migrate_refuses_a_database_of_010(arguments):
    execute(OF_010)
    with pytest.raises(
        CommandError, match=r"created by opsportal 0\.1\.0, .* migrate a new, empty database"
    ):
        call_command("migrate", *arguments)


@pytest.mark.parametrize("arguments", [[], ["--plan"], ["--check"], ["jobs", "zero"]])
def test_migrate_refuses_a_database_of_a_newer_version(arguments):
    MigrationRecorder(connection).record_applied("jobs", "0999_future")
    with pytest.raises(
        CommandError, match=rf"opsportal {VERSION} does not know \(jobs\.0999_future\)"
    ):
        call_command("migrate", *arguments)


def test_unknown_migrations_can_be_pruned():
    MigrationRecorder(connection).record_applied("jobs", "0999_future")
    call_command("migrate", "jobs", "--prune", verbosity=0)
    call_command("migrate", "--check")


def test_migrations_of_other_packages_are_not_judged():
    MigrationRecorder(connection).record_applied("axes", "0999_future")
    call_command("migrate", "--check")


@pytest.mark.parametrize("applied", [[], ["contenttypes"], ["contenttypes", "core"]])
def test_first_migrate_that_was_interrupted_goes_on(applied):
    MigrationRecorder.Migration.objects.exclude(app__in=applied).delete()
    if "core" not in applied:
        execute(OF_010)
    assert find_refusal(database="default") is None
