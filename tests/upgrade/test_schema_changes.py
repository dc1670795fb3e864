"""Each kind of change that code of the release before does not bear is found, and no other one."""

import psycopg
import pytest

from tests.upgrade import databases
from tests.upgrade.schema_changes import find_changes, read_schema

#: One database for all, which one worker of the tests makes.
pytestmark = pytest.mark.xdist_group("schema changes")
DATABASE = "schema_changes"
BEFORE = """
    CREATE TABLE other (id bigint PRIMARY KEY);
    CREATE TABLE job (
        id bigint PRIMARY KEY, name varchar(8) NOT NULL, site text, state text NOT NULL DEFAULT ''
    );
    CREATE FUNCTION trigger_of_tests() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
"""


@pytest.fixture(scope="module")
def database():
    databases.administer(f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)")
    databases.administer(f"CREATE DATABASE {DATABASE}")
    with psycopg.connect(databases.url_of(DATABASE), autocommit=True) as connection:
        connection.execute(BEFORE)
        yield connection
    databases.administer(f"DROP DATABASE {DATABASE} WITH (FORCE)")


@pytest.mark.parametrize(
    ("statement", "change"),
    [
        ("DROP TABLE other", "other is gone"),
        ("ALTER TABLE job DROP site", "job.site is gone"),
        ("ALTER TABLE job ALTER site SET NOT NULL", "job.site must not be NULL"),
        ("ALTER TABLE job ALTER name DROP NOT NULL", "job.name may be NULL"),
        ("ALTER TABLE job ALTER state DROP DEFAULT", "job.state has no default"),
        (
            "ALTER TABLE job ALTER name TYPE varchar(16)",
            "job.name is character varying(16), was character varying(8)",
        ),
        ("ALTER TABLE job ADD retries int NOT NULL", "job.retries is required"),
        ("ALTER TABLE job ADD CONSTRAINT named CHECK (name <> '')", "job has named"),
        (
            "ALTER TABLE job ADD retries int, ADD CONSTRAINT two CHECK (site <> '' OR retries > 0)",
            "job has two",
        ),
        (
            "ALTER TABLE job ADD CONSTRAINT to_other FOREIGN KEY (id) REFERENCES other",
            "job has to_other",
        ),
        ("CREATE UNIQUE INDEX job_once ON job (name)", "job has job_once"),
        ("ALTER TABLE job ADD retries int DEFAULT 0 UNIQUE", "job has job_retries_key"),
        (
            "CREATE TRIGGER seen BEFORE UPDATE ON job EXECUTE FUNCTION trigger_of_tests()",
            "job has seen",
        ),
        ("ALTER TABLE job ADD retries int NOT NULL DEFAULT 0 CHECK (retries >= 0)", None),
        ("ALTER TABLE job ADD number bigint GENERATED ALWAYS AS IDENTITY", None),
        ("ALTER TABLE job ADD other_id bigint REFERENCES other", None),
        ("CREATE TABLE host (id bigint PRIMARY KEY, name text NOT NULL)", None),
        ("CREATE INDEX job_site ON job (site)", None),
    ],
)
def test_change_is_found(database, statement, change):
    before = read_schema(database)
    with database.transaction(force_rollback=True):
        database.execute(statement)
        changes = find_changes(before, read_schema(database))
    assert changes == ({change} if change else set())
