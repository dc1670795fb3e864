"""`python -m dev.packaging.dump CHECKOUT`: the dump of a release that upgrades are tested with.

CHECKOUT is the release, with its own `.venv` (`make install` there). Two servers of our own are
started below `--var`, the release migrates an empty database and fills it with two months of its
demo: jobs, failures, verdicts, incidents, requests, archived scripts. Then it says what it holds
(`facts.py`), and both are written to `tests/upgrade/releases/VERSION.{sql,json}.gz`;
its API's schema to `VERSION.openapi.json.gz`.

The dump is SQL by PostgreSQL 15, which later versions read, too. Nothing of this machine is in it.
"""

import argparse
import gzip
import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import psycopg

from dev.messages import SetupError, fail, say
from dev.postgres import OLDEST_MAJOR, Postgres, clean_environment
from dev.processes import ROOT, free_port, guard, spawn
from dev.valkey import Valkey

RELEASES = ROOT / "tests/upgrade/releases"
FACTS = ROOT / "dev/packaging/facts.py"
CLUSTER = "hepsim"
HOST = "portal.example.org"
MOST_BYTES = 2_000_000
WORK_SECONDS = 150
#: Tables with rows once jobs were archived, their logs read, and rules decided about the failed.
WORKED = (
    "archive_wordindex",
    "diagnosis_verdict",
    "diagnosis_dailycausetotals",
    "jobs_logphase",
    "recovery_decision",
    "recovery_weeklyrecovery",
    "search_templatetotals",
)
MOST_WORK_SECONDS = 1_800
#: The history of the demo has 150 to 500 jobs a day, which a small dump has no room for.
HISTORY = """
from django.core.management import call_command
from apps.demo.data import history
history._FIRST_RATE, history._LAST_RATE = 6, 14
call_command("demo", "--history", "--dir", "{directory}")
"""
#: Tables whose rows name this machine, or are secrets, and are made again.
EMPTIED = ("django_session", "core_heartbeat", "knox_authtoken", "axes_accesslog")


class ReleaseDump:
    """One dump being made: the release's checkout, our servers below `var`, its environment."""

    def __init__(self, checkout: Path, var: Path) -> None:
        self.checkout, self.var, self.run = checkout, var, var / "run"
        self.python = str(checkout / ".venv/bin/python")
        self.simulation = var / "simulation" / CLUSTER
        for directory in (self.run, var / "s", var / "valkey", self.simulation):
            directory.mkdir(parents=True)
        self.watchdog = guard(self.run)
        self.postgres = Postgres(var / "postgres", var / "s", fast=True)
        self.valkey = Valkey(var / "valkey", var / "s", fast=True)
        self.environment = clean_environment() | {
            "SECRET_KEY": "the key of a portal that only its dump is left of, long enough",
            "DATABASE_URL": self.postgres.url("opsportal"),
            "REDIS_URL": self.valkey.url(),
            "PORTAL_URL": f"https://{HOST}",
            "ALLOWED_HOSTS": "testserver,127.0.0.1",
            "DEMO": "true",
            "VAR_DIR": str(var),
            "STATIC_DIR": str(var / "static"),
            "LOG_ROOTS": str(var / "simulation"),
            "CAPTURE_CLUSTER": CLUSTER,
            "CAPTURE_SCHEDULER": "simulated",
            "CAPTURE_SPOOL": str(self.simulation / "spool"),
            "CAPTURE_JOURNAL": str(var / "journal"),
            "PYTHONPATH": str(checkout),
            "PYTHONWARNINGS": "ignore",
        }

    def make(self) -> tuple[str, str, bytes]:
        """Return facts and schema of the API as JSON, and the dump as SQL. Raises `SetupError`."""
        self._start_servers()
        say("migrating and loading the demo")
        self._manage("demo", "--migrate", "--dir", str(self.simulation))
        self._manage("collectstatic", "--no-input", "--verbosity", "0")
        self._manage("shell", "-c", HISTORY.format(directory=self.simulation))
        say(f"working for {WORK_SECONDS} s")
        self._work()
        with psycopg.connect(self.postgres.url("opsportal"), autocommit=True) as connection:
            forget_machine(connection)
        say("asking the release what it holds")
        version = self._call("manage.py", "version").split()[-1]
        facts = json.loads(self._call("-P", str(FACTS)))
        if not facts["rows"]["archive_archivedjob"]:
            raise SetupError("capture handed over no job")
        facts = {"version": version, "at": datetime.now(UTC).isoformat(timespec="seconds")} | facts
        with psycopg.connect(self.postgres.url("opsportal"), autocommit=True) as connection:
            forget_machine(connection)
        schema = self._call("manage.py", "spectacular", "--format", "openapi-json")
        return json.dumps(facts, indent=1), schema, self._dump()

    def stop(self) -> None:
        """Stop servers and whatever else still runs."""
        if self.watchdog.stdin:
            self.watchdog.stdin.close()
        self.watchdog.wait(timeout=60)

    def _start_servers(self) -> None:
        self.postgres.prepare()
        with (self.var / "servers.log").open("ab") as log:
            spawn("postgres", self.postgres.command(), self.run, stdout=log, stderr=log)
            spawn("valkey", self.valkey.command(), self.run, stdout=log, stderr=log)
        self.postgres.wait_ready()
        self.valkey.wait_ready()
        self.postgres.create_database("opsportal")

    def _manage(self, *arguments: str) -> None:
        self._call("manage.py", *arguments)

    def _call(self, *arguments: str) -> str:
        """Return what a program of the release printed. Raises `SetupError`."""
        done = subprocess.run(
            [self.python, *arguments],
            cwd=self.checkout,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise SetupError(f"{arguments[0]} {arguments[1]} failed: {done.stderr.strip()[-2000:]}")
        return done.stdout

    def _work(self) -> None:
        """Let the simulated cluster, capture, a web server and a worker run as in the demo."""
        portal = f"127.0.0.1:{free_port()}"
        spool = str(self.simulation / "spool")
        simulate = ["manage.py", "simulate", "--cluster", CLUSTER, "--spool", spool]
        options = ["--jobs-per-day", "60", "--speed", "2", "--pace", "60", "--min-job-age", "90000"]
        worker = ["-m", "celery", "--quiet", "-A", "opsportal", "worker", "--beat", "--queues"]
        worker += ["default,harvest,archive", "--concurrency", "2", "--without-gossip"]
        web = ["-m", "gunicorn", "opsportal.wsgi", "--bind", portal, "--log-level", "warning"]
        programs = {
            "web": web,
            "simulate": [*simulate, *options],
            "capture": ["manage.py", "capture"],
            "worker": [
                *worker,
                "--hostname",
                f"worker@{HOST}",
                "--schedule",
                str(self.var / "beat"),
            ],
        }
        running = []
        for name, command in programs.items():
            with (self.var / f"{name}.log").open("ab") as log:
                environment = dict(self.environment)
                if name in {"web", "capture"}:  # capture hands over what it reads
                    environment["PORTAL_URL"] = f"http://{portal}"
                options_of_process = {"cwd": self.checkout, "env": environment}
                child = spawn(
                    name,
                    [self.python, *command],
                    self.run,
                    stdout=log,
                    stderr=log,
                    **options_of_process,
                )
            running.append(child)
        time.sleep(WORK_SECONDS)
        self._wait_for_work()
        for child in running:
            if child.poll() is not None:
                raise SetupError(f"a program ended: see {self.var}/*.log")
            child.send_signal(signal.SIGTERM)
            child.wait(timeout=120)

    def _wait_for_work(self) -> None:
        """Wait until there are rows in the tables of `WORKED`: on a busy machine, later.

        Raises `SetupError` if some stay empty.
        """
        latest = time.monotonic() + MOST_WORK_SECONDS
        with psycopg.connect(self.postgres.url("opsportal"), autocommit=True) as connection:
            while empty := find_empty(connection, WORKED):
                if time.monotonic() > latest:
                    raise SetupError(f"without rows: {', '.join(empty)}: see {self.var}/*.log")
                say(f"waiting for rows of {', '.join(empty)}")
                time.sleep(10)

    def _dump(self) -> bytes:
        command = [str(self.postgres.bin / "pg_dump"), "--no-owner", "--no-privileges"]
        done = subprocess.run(
            [*command, "--dbname", self.postgres.url("opsportal")],
            env=clean_environment(),
            capture_output=True,
            check=False,
        )
        if done.returncode:
            raise SetupError(f"pg_dump: {done.stderr.decode().strip()}")
        # Commands that only the newest psql knows.
        return re.sub(rb"^\\(un)?restrict .*\n", b"", done.stdout, flags=re.MULTILINE)


def find_empty(connection: psycopg.Connection, tables: Sequence[str]) -> list[str]:
    """Return those of the tables that have no rows."""
    empty = []
    for table in tables:
        has_rows = connection.execute(f'SELECT EXISTS (SELECT FROM "{table}")').fetchone()
        if has_rows != (True,):
            empty.append(table)
    return empty


def forget_machine(connection: psycopg.Connection) -> None:
    """Replace the name of this host in all texts, and empty the tables of `EMPTIED`."""
    host = _this_host()
    columns = connection.execute(
        "SELECT table_name, column_name, data_type FROM information_schema.columns "
        "JOIN pg_class ON oid = to_regclass(quote_ident(table_name)) "
        "WHERE table_schema = 'public' AND relkind IN ('r', 'p') AND NOT relispartition "
        "AND is_generated = 'NEVER' AND data_type IN ('text', 'character varying', 'jsonb')"
    ).fetchall()
    tables = {table for table, _, _ in columns}
    # This switches triggers and foreign keys off.
    connection.execute("SET session_replication_role = replica")
    for table in tables.intersection(EMPTIED):
        connection.execute(f'DELETE FROM "{table}"')
    for table, column, kind in columns:
        connection.execute(
            f'UPDATE "{table}" SET "{column}" = '
            f"regexp_replace(\"{column}\"::text, %s, %s, 'g')::{kind} "
            f'WHERE "{column}"::text ~ %s',
            (host, HOST, host),
        )


def _this_host() -> str:
    """Return a pattern of PostgreSQL for the name of this host as a whole word."""
    return rf"\m{re.escape(socket.gethostname())}\M"


def check_dump(sql: bytes, checkout: Path) -> None:
    """Raise `SetupError` if the dump names this host, or a directory of this machine's."""
    host = re.escape(socket.gethostname().encode())
    leak = re.search(rb"(?<![\w.])" + host + rb"(?!\w)", sql)
    for directory in (ROOT, checkout, Path.home()):
        leak = leak or re.search(re.escape(f"{directory}/".encode()), sql)
    if leak:
        near = sql[max(0, leak.start() - 80) : leak.end() + 80]
        raise SetupError(f"the dump names this machine: {near!r}")


def write(path: Path, content: bytes) -> None:
    """Write a compressed file, the same bytes for the same content. Raises `SetupError`."""
    packed = gzip.compress(content, 9, mtime=0)
    if len(packed) > MOST_BYTES:
        raise SetupError(f"{path.name} would have {len(packed)} bytes, more than {MOST_BYTES}")
    path.write_bytes(packed)
    say(f"{path.relative_to(ROOT)}: {len(packed):,} bytes, {len(content):,} unpacked")


def main() -> int:
    """Make the dump. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m dev.packaging.dump")
    parser.add_argument("checkout", type=Path, help="checkout of the release, with its .venv")
    parser.add_argument("--var", type=Path, default=Path("/srv/opsportal"), help="is removed after")
    options = parser.parse_args()
    if options.var.exists():
        return fail(SetupError(f"{options.var} exists: remove it, or give another --var"))
    release = None
    try:
        release = ReleaseDump(options.checkout.resolve(), options.var.absolute())
        version_file = (release.postgres.bin / "postgres", "--version")
        major = subprocess.run(version_file, capture_output=True, text=True, check=True).stdout
        if f") {OLDEST_MAJOR}." not in major:
            raise SetupError(f"dumps are made by PostgreSQL {OLDEST_MAJOR}: set POSTGRES_BIN")
        facts, schema, sql = release.make()
        check_dump(sql, release.checkout)
        name = json.loads(facts)["version"]
        write(RELEASES / f"{name}.sql.gz", sql)
        write(RELEASES / f"{name}.json.gz", facts.encode())
        write(RELEASES / f"{name}.openapi.json.gz", schema.encode())
    except (SetupError, OSError) as error:
        return fail(SetupError(str(error)))
    finally:
        if release:
            release.stop()
    shutil.rmtree(options.var)
    return 0


if __name__ == "__main__":
    sys.exit(main())
