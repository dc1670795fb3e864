"""A PostgreSQL primary with a synchronous standby, each of which may be killed and promoted."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psycopg
from django.db import connection

from dev.postgres import NOBODY, UNPRIVILEGED, USER, Postgres, clean_environment
from dev.processes import free_port, guard, spawn
from opsportal.servers import database_settings
from tests.failover.waiting import wait_for
from tests.upgrade.databases import BINARIES, url_of

NAME = "opsportal"


class Server:
    """A PostgreSQL on a port of loopback."""

    def __init__(self, stack: ExitStack, base: Path) -> None:
        self.port = free_port()
        self._run = base / "run"
        for directory in (base, self._run, base / "s"):
            directory.mkdir()
        watchdog = guard(self._run)
        stack.callback(watchdog.wait, timeout=60)
        stack.callback(watchdog.stdin.close)
        self.postgres = Postgres(base / "data", base / "s", fast=True)
        self.postgres.settings |= {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "synchronous_commit": "on",
        }

    @property
    def url(self) -> str:
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{NAME}"

    def start(self) -> None:
        """Start the server, with what its data directory holds or a new database."""
        self.postgres.prepare()
        null = subprocess.DEVNULL
        self._process = spawn(
            "postgres", self.postgres.command(), self._run, stdout=null, stderr=null
        )
        wait_for(self._answers)

    def _answers(self) -> bool:
        with suppress(psycopg.OperationalError):
            self.ask("SELECT 1", database="postgres")
            return True
        return False

    def ask(self, statement: str, database: str = NAME) -> object:
        """Return the first value that a statement yields; None where it yields nothing."""
        url = self.url.removesuffix(NAME) + database
        with psycopg.connect(url, autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchone()[0] if cursor.description else None

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def promote(self) -> None:
        self.ask("SELECT pg_promote()")


class Pair:
    """A primary that holds a copy of a database of the tests, and its standby.

    Each commit waits for the standby, so none is lost with the primary.
    """

    def __init__(self, stack: ExitStack, base: Path, copied: str) -> None:
        self.primary = Server(stack, base / "1")
        self.standby = Server(stack, base / "2")
        self.primary.start()
        self.primary.ask(f"CREATE DATABASE {NAME}", database="postgres")
        copy_database(url_of(copied), self.primary.url)
        back_up(self.primary, self.standby, "--write-recovery-conf")
        self.standby.start()
        self.primary.ask("ALTER SYSTEM SET synchronous_standby_names = '*'")
        self.primary.ask("SELECT pg_reload_conf()")
        wait_for(lambda: self.primary.ask("SELECT sync_state FROM pg_stat_replication") == "sync")

    @property
    def url(self) -> str:
        """The URL with both servers."""
        return (
            f"postgresql://{USER}@127.0.0.1:{self.primary.port},127.0.0.1:{self.standby.port}"
            f"/{NAME}"
        )


@contextmanager
def on_database(url: str) -> Iterator[None]:
    """Let this process use another database until the end of the block."""
    own = dict(connection.settings_dict)
    connection.close()
    connection.settings_dict.update(database_settings(url))
    try:
        yield
    finally:
        connection.close()
        connection.settings_dict.clear()
        connection.settings_dict.update(own)


def copy_database(source: str, target: str) -> None:
    dump = [BINARIES / "pg_dump", "--no-owner", "-d", source]
    psql = [BINARIES / "psql", "-Xqo", "/dev/null", "-v", "ON_ERROR_STOP=1", "-d", target]
    sql = subprocess.run(dump, env=clean_environment(), capture_output=True, check=True).stdout
    subprocess.run(psql, input=sql, env=clean_environment(), check=True)


def back_up(server: Server, copy: Server, *options: str) -> None:
    """Copy a server's files for another one, with these options of pg_basebackup."""
    data = copy.postgres.data
    data.mkdir(mode=0o700)
    if os.geteuid() == 0 and server.postgres.prefix == UNPRIVILEGED:
        os.chown(data, NOBODY, NOBODY)
    command = [*server.postgres.prefix, server.postgres.bin / "pg_basebackup"]
    command += ["--checkpoint=fast", "--no-sync", *options, "-D", data]
    command += ["-h", "127.0.0.1", "-p", str(server.port), "-U", USER]
    subprocess.run(command, cwd="/", env=clean_environment(), check=True)
