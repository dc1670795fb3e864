"""A PostgreSQL that archives its WAL, and the repository of its backups."""

import configparser
import os
import shutil
import subprocess
from pathlib import Path

import psycopg

from dev.postgres import NOBODY, UNPRIVILEGED, USER, Postgres, clean_environment
from dev.processes import ROOT, guard, spawn

CONFIGURATION = ROOT / "deploy/pgbackrest/pgbackrest.conf"
DATABASE = "opsportal"
STANZA = "opsportal"
PASSPHRASE = "a passphrase for benchmarks"
#: The settings of the development's server that a site has differently.
SITE_SETTINGS = {
    "shared_buffers": "512MB",
    "maintenance_work_mem": "512MB",
    "max_wal_size": "2GB",
    "checkpoint_timeout": "5min",
}


class BackupFailed(Exception):
    """pgbackrest failed; the text is its errors."""


class Server:
    """One data directory, the process that serves it, and its repository.

    All lies in one directory, which `close` removes.
    """

    def __init__(self, base: Path, *, archive_timeout: int) -> None:
        self.base = base
        base.chmod(0o755)  # PostgreSQL may be another user
        self.postgres = Postgres(base / "data", base / "sockets")
        for name in ("run", "sockets"):
            (base / name).mkdir()
        self._watchdog = guard(base / "run", remove=base)
        self.repository = self._make("repository")
        self.configuration = base / "pgbackrest.conf"
        self._write_configuration()
        archive = f"pgbackrest --config={self.configuration} --stanza={STANZA} archive-push %p"
        self.postgres.settings |= SITE_SETTINGS | {
            "archive_mode": "on",
            "archive_command": archive,
            "archive_timeout": f"{archive_timeout}s",
        }
        self._log = (base / "postgres.log").open("ab")

    def _make(self, name: str) -> Path:
        directory = self.base / name
        directory.mkdir()
        self._own(directory)
        return directory

    def _own(self, path: Path) -> None:
        """Give a file to the user of PostgreSQL."""
        if os.geteuid() == 0 and self.postgres.prefix == UNPRIVILEGED:
            os.chown(path, NOBODY, NOBODY)

    def _write_configuration(self) -> None:
        """Write the configuration of `deploy/`, with the places and the users of this machine."""
        configuration = configparser.ConfigParser()
        configuration.read(CONFIGURATION)
        configuration["global"].update(
            {
                "repo1-path": str(self.repository),
                "repo1-cipher-pass": PASSPHRASE,
                "log-path": str(self._make("log")),
                "lock-path": str(self._make("lock")),
                "spool-path": str(self._make("spool")),
            }
        )
        configuration["global:backup"]["log-level-console"] = "warn"
        configuration[STANZA].update(
            {
                "pg1-path": str(self.postgres.data),
                "pg1-socket-path": str(self.postgres.sockets),
                "pg1-user": USER,
                "pg1-database": "postgres",
            }
        )
        with self.configuration.open("w") as file:
            configuration.write(file, space_around_delimiters=False)

    @property
    def url(self) -> str:
        return self.postgres.url(DATABASE)

    def start(self) -> None:
        """Start the server, with what its data directory holds or a new database."""
        self.postgres.prepare()
        self._process = spawn(
            "postgres",
            self.postgres.command(),
            self.base / "run",
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )
        self.postgres.wait_ready(self._process.poll, seconds=3600)

    def lose(self) -> None:
        """Kill the server, and remove its data directory."""
        lines = (self.postgres.data / "postmaster.pid").read_text().splitlines()
        os.kill(int(lines[0]), 9)
        self._process.wait()
        shutil.rmtree(self.postgres.data)

    def back_up(self, *arguments: str) -> str:
        """Run pgbackrest with these arguments; return what it prints. Raises `BackupFailed`."""
        command = [*self.postgres.prefix, "pgbackrest", f"--config={self.configuration}"]
        command += [f"--stanza={STANZA}", *arguments]
        done = subprocess.run(
            command,
            cwd="/",
            env=clean_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",  # what a wrong passphrase makes of a file
            check=False,
        )
        if done.returncode:
            raise BackupFailed(done.stdout.strip())
        return done.stdout

    def restore(self, *options: str) -> None:
        """Restore the lost data directory with these options of pgbackrest's `restore`.

        PostgreSQL recovers when it starts. Raises `BackupFailed`.
        """
        shutil.rmtree(self.postgres.data, ignore_errors=True)
        self.postgres.data.mkdir(mode=0o700)
        self._own(self.postgres.data)
        self.back_up(*options, "restore")

    def ask(self, statement: str) -> tuple:
        """Return the row that a statement yields."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            return connection.execute(statement).fetchone() or ()

    def close(self) -> None:
        """Stop the server, and remove all files."""
        self._log.close()
        self._watchdog.stdin.close()
        self._watchdog.wait(timeout=600)
        shutil.rmtree(self.base, ignore_errors=True)
