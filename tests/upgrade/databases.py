"""Databases of their own beside that of the tests: restored from a dump, copied, described."""

import gzip
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import psycopg

from dev.postgres import clean_environment, find_binaries

ROOT = Path(__file__).parents[2]
RELEASES = ROOT / "tests/upgrade/releases"
FACTS = ROOT / "dev/packaging/facts.py"
BINARIES = find_binaries(Path("/nonexistent"))


def url_of(name):
    """Return the URL of a database on the server of the tests."""
    server = urlsplit(os.environ["DATABASE_URL"])
    # Not by `geturl`, which loses the slashes before an empty host.
    return f"{server.scheme}://{server.netloc}/{name}?{server.query}"


def administer(statement):
    with psycopg.connect(url_of("postgres"), autocommit=True) as connection:
        connection.execute(statement)


def restore(name, release):
    """Make a database of the dump of a release."""
    administer(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
    administer(f'CREATE DATABASE "{name}"')
    sql = gzip.decompress((RELEASES / f"{release}.sql.gz").read_bytes())
    psql = [BINARIES / "psql", "-XqAt", "-v", "ON_ERROR_STOP=1", "--single-transaction"]
    subprocess.run(
        [*psql, "-d", url_of(name)],
        input=sql,
        env=clean_environment(),
        stdout=subprocess.DEVNULL,
        check=True,
    )


def read_facts(release):
    return json.loads(gzip.decompress((RELEASES / f"{release}.json.gz").read_bytes()))


def copy_schema(name, copy):
    """Make a database with the schema of another, and no rows."""
    administer(f'DROP DATABASE IF EXISTS "{copy}" WITH (FORCE)')
    administer(f'CREATE DATABASE "{copy}"')
    psql = [BINARIES / "psql", "-Xqo", "/dev/null", "-v", "ON_ERROR_STOP=1", "-d", url_of(copy)]
    subprocess.run(psql, input=_dump_schema(name), env=clean_environment(), check=True)


def _dump_schema(name):
    command = [BINARIES / "pg_dump", "--schema-only", "--no-owner", "-d", url_of(name)]
    return subprocess.check_output(command, env=clean_environment())


def read_schema(name):
    """Return the lines of a database's schema, sorted, without comments.

    PostgreSQL words the constraints of a restored database otherwise, so a copy is read.
    """
    copy = f"{name}_schema"
    copy_schema(name, copy)
    lines = _dump_schema(copy).decode().splitlines()
    administer(f'DROP DATABASE "{copy}"')
    return sorted(line.rstrip(",") for line in lines if line and not line.startswith(("--", "\\")))


def environment_of(name, directory):
    """Return the environment of a portal on this database, whose files are in `directory`."""
    redis_url = os.environ["REDIS_URL"].partition("?")[0] + "?db=15"
    return os.environ | {
        "DATABASE_URL": url_of(name),
        "REDIS_URL": redis_url,
        "PORTAL_URL": "https://portal.example.org",
        "ALLOWED_HOSTS": "testserver",
        "VAR_DIR": str(directory),
        "STATIC_DIR": str(directory),
        "DEBUG": "true",
        "DEMO": "true",
    }


def start_migrating(name, directory):
    return subprocess.Popen(
        [sys.executable, "manage.py", "migrate", "--verbosity", "0"],
        cwd=ROOT,
        env=environment_of(name, directory),
        stderr=subprocess.PIPE,
        text=True,
    )


def list_applied(name):
    """Return the applied migrations as pairs of app and name."""
    with psycopg.connect(url_of(name)) as connection:
        return set(connection.execute("SELECT app, name FROM django_migrations"))


def count_applied(name):
    with psycopg.connect(url_of(name)) as connection:
        return connection.execute("SELECT count(*) FROM django_migrations").fetchone()[0]


def migrate_with_kills(name, directory, kill_after):
    """Migrate, but kill the process when so many more migrations are applied, once for each."""
    begun_with = count_applied(name)
    for migrations in kill_after:
        process = start_migrating(name, directory)
        while count_applied(name) < begun_with + migrations and process.poll() is None:
            time.sleep(0.01)
        assert process.poll() is None, process.stderr.read()
        process.kill()
        process.communicate()
    process = start_migrating(name, directory)
    message = process.communicate()[1]
    assert process.returncode == 0, message


def describe(name, directory, asked):
    """Return what a portal on this database says, at the time of the facts that are `asked`."""
    (directory / "asked.json").write_text(json.dumps(asked))
    done = subprocess.run(
        [sys.executable, "-P", FACTS, directory / "asked.json"],
        cwd=ROOT,
        env=environment_of(name, directory) | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
