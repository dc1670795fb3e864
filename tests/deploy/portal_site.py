"""A PostgreSQL that checks passwords, and `opsportal setup` on a directory of its own."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import psycopg

from dev.postgres import Postgres
from dev.processes import guard, spawn

ROOT = Path(__file__).parents[2]
#: The superuser may come without a password, all others need theirs.
ACCESS = "local all opsportal trust\nlocal all all scram-sha-256\n"


class PasswordServer:
    """A PostgreSQL server in a directory; `stop` ends it and removes the directory."""

    def __init__(self, base: Path) -> None:
        self.sockets = base / "s"
        run = base / "run"
        for directory in (base, self.sockets, run):
            directory.mkdir()
        self.watchdog = guard(run, remove=base)
        self.postgres = Postgres(base / "postgres", self.sockets, fast=True)
        self.postgres.prepare()
        (base / "postgres/pg_hba.conf").write_text(ACCESS)
        with (base / "log").open("ab") as output:
            spawn("postgres", self.postgres.command(), run, stdout=output, stderr=output)
        self.postgres.wait_ready()
        self.admin_url = self.url("opsportal", "postgres")

    def url(self, role: str, database: str) -> str:
        return f"postgresql://{role}@/{database}?host={self.sockets}"

    def run(self, statement: str) -> list[tuple]:
        with psycopg.connect(self.admin_url, autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def stop(self) -> None:
        self.watchdog.stdin.close()
        self.watchdog.wait(timeout=20)


def example_answers() -> dict:
    """The answers that docs/production.md shows."""
    page = (ROOT / "docs/production.md").read_text()
    [block] = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    return tomllib.loads(block)


class NewSite:
    """A directory in which a portal is set up, with the answers of the guide."""

    def __init__(self, directory: Path, server: PasswordServer, name: str) -> None:
        self.directory = directory
        self.server = server
        self.name = name
        self.etc = directory / "etc/opsportal"
        self.env_file = self.etc / "opsportal.env"
        self.var = directory / "var"
        self.answers = example_answers() | {
            "VAR_DIR": str(self.var),
            "DATABASE_URL": server.url(name, name),
            "database_admin": server.admin_url,
            "REDIS_URL": os.environ["REDIS_URL"],
            "system_user": "root" if os.geteuid() == 0 else os.environ["USER"],
        }

    def write_answers(self, **changes) -> Path:
        """Write the file of answers; `None` leaves one out."""
        path = self.directory / "answers.toml"
        lines = []
        for key, value in (self.answers | changes).items():
            if value is not None:
                lines.append(f"{key} = {value!r}\n")
        path.write_text("".join(lines))
        path.chmod(0o600)
        return path

    def command(self, *options: str, **changes) -> list[str]:
        answers = self.write_answers(**changes)
        setup = [sys.executable, str(ROOT / "manage.py"), "setup"]
        return [*setup, "--answers", str(answers), "--env-file", str(self.env_file), *options]

    def set_up(self, *options: str, code: int = 0, **changes) -> str:
        """Run the setup; return what it prints, both streams."""
        done = subprocess.run(
            self.command(*options, **changes),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            check=False,
            cwd=self.directory,
            env=bare_environment(),
        )
        assert done.returncode == code, done.stdout
        return done.stdout

    def files(self) -> dict[str, tuple]:
        """Mode, time of change and bytes of every file and directory of the site."""
        state = {}
        for top in (self.etc, self.var):
            for path in (top, *top.rglob("*")) if top.exists() else ():
                status = path.lstat()
                content = path.read_bytes() if path.is_file() else b""
                state[str(path)] = (status.st_mode, status.st_mtime_ns, content)
        return state

    def rows(self) -> dict[str, list]:
        """All rows of all tables that the setup may fill."""
        url = (self.etc / "secrets/database-url").read_text().strip()
        rows = {}
        with psycopg.connect(url) as connection:
            tables = connection.execute(
                "SELECT oid::regclass::text FROM pg_class "
                "WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
            ).fetchall()
            for (table,) in tables:
                query = f"SELECT t::text FROM {table} t ORDER BY 1"
                rows[table] = connection.execute(query).fetchall()
        return rows


def bare_environment() -> dict[str, str]:
    """What a root shell has, without any setting of a portal."""
    return {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
