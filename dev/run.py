"""`make run`: servers, migrations, demo, the processes of the Procfile,
until Ctrl-C. Runs inside the environment.
"""

import ctypes
import hashlib
import http.client
import json
import os
import re
import secrets
import signal
import sys
import time
from contextlib import closing, suppress
from pathlib import Path

from dev import claim
from dev.exports import write_exports
from dev.layout import Layout
from dev.messages import SetupError, fail, say
from dev.postgres import Postgres, clean_environment
from dev.processes import ROOT, guard
from dev.supervisor import Child, Stopped, Supervisor
from dev.valkey import Valkey

DATABASE = "opsportal"
CLUSTER = "hepsim"
WEB_SECONDS = 90
LOWEST_PRIORITY = 19
#: What pages, static files, migrations and the demo are made of.
CODE = ("apps", "capture", "clients", "opsportal", "requirements.lock", "static", "templates")
PR_SET_PDEATHSIG = 1


class Run:
    """One run of the portal with its demo."""

    def __init__(self, port: int, layout: Layout) -> None:
        self.port = port
        self.layout = layout
        self.url = f"http://localhost:{port}"
        self.supervisor = Supervisor(layout.run, layout.log, ROOT)
        self.environment: dict[str, str] = {}

    def go(self) -> None:
        """Start everything and run until stopped.

        Raises `Stopped`, and `SetupError` if a part does not start.

        The pages come first. Whatever else competes for the processor waits until they answer.
        """
        postgres = Postgres(self.layout.postgres, self.layout.sockets)
        valkey = Valkey(self.layout.valkey, self.layout.sockets)
        self._set_environment(postgres, valkey)
        processes = read_procfile(ROOT / "Procfile.demo")
        preparation = Preparation(self.layout)
        if preparation.is_current():
            self._start_servers(postgres, valkey)
            self._start_process("web", processes.pop("web"))
            logins = preparation.logins()
        else:
            preparation.forget()
            static = self._begin("collectstatic", "--no-input", "--verbosity", "0")
            self._start_servers(postgres, valkey)
            say("migrating the database and loading the demo")
            demo = self._begin("demo", "--migrate")
            self._finish(static)
            self._start_process("web", processes.pop("web"))  # it loads while the demo does
            logins = self._finish(demo)
            preparation.remember(logins)
        self._wait_for_web()
        self._tell_ready(logins)

        for name, command in processes.items():
            self._start_process(name, command)
        self._begin("demo", "--history", niceness=LOWEST_PRIORITY)
        parent = Parent()
        while True:
            self.supervisor.pump(0.25)
            if parent.was_interrupted():
                raise Stopped

    def _set_environment(self, postgres: Postgres, valkey: Valkey) -> None:
        base = clean_environment() | {"OPSPORTAL_RUN": str(self.layout.run)}
        settings = demo_settings(self.port, self.layout, postgres.url(DATABASE), valkey.url())
        write_exports(self.layout.var / "env", settings)
        self.environment = base | settings
        for name in list(self.environment):
            self.environment.pop(f"{name}_FILE", None)

    def _start_servers(self, postgres: Postgres, valkey: Valkey) -> None:
        tick = self.supervisor.pump
        base = clean_environment() | {"OPSPORTAL_RUN": str(self.layout.run)}
        is_new = not self.layout.postgres.exists()
        say("making the database" if is_new else "starting PostgreSQL and Valkey")
        postgres.prepare()
        self.supervisor.start(
            "postgres", postgres.command(), base, quiet=True, before=postgres.clear_stale
        )
        self.supervisor.start("valkey", valkey.command(), base, quiet=True)
        postgres.wait_ready(tick)
        valkey.wait_ready(tick)
        postgres.create_database(DATABASE)

    def _begin(self, *arguments: str, niceness: int = 0) -> Child:
        """Start a management command."""
        command = [sys.executable, "manage.py", *arguments]
        if niceness:
            command = ["nice", "-n", str(niceness), *command]
        return self.supervisor.start(
            arguments[0], command, self.environment, quiet=True, restart=False
        )

    def _finish(self, child: Child) -> str:
        """Wait for a command and return the last line it printed. Raises `SetupError`."""
        while child.process:
            self.supervisor.pump(0.1)
        name = child.name
        del self.supervisor.children[name]
        output = b"\n".join(child.tail).decode(errors="replace")
        if child.status:
            log = self.layout.log / f"{name}.log"
            raise SetupError(
                f"manage.py {name} did not succeed: {output.strip().rpartition(chr(10))[2]} "
                f"(all of it: {log})"
            )
        return output

    def _start_process(self, name: str, command: str) -> None:
        self.supervisor.start(name, ["/bin/sh", "-c", f"exec {command}"], self.environment)

    def _wait_for_web(self) -> None:
        until = time.monotonic() + WEB_SECONDS
        while time.monotonic() < until:
            self.supervisor.pump(0.1)
            if self._is_healthy():
                return
        raise SetupError(
            f"web did not answer within {WEB_SECONDS} s: see {self.layout.log / 'web.log'}"
        )

    def _is_healthy(self) -> bool:
        # Connect directly, whatever proxy is set.
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        with suppress(OSError, http.client.HTTPException), closing(connection):
            connection.request("GET", "/healthz")
            return connection.getresponse().status == 200
        return False

    def _tell_ready(self, logins: str) -> None:
        say(f"ready: {self.url}/")
        with suppress(OSError):
            print(f"{logins}\nlogs: {self.layout.log}    stop: Ctrl-C", flush=True)


class Preparation:
    """What a VAR needs, made once for each state of the code.

    That is static files, migrations and the data of the demo.
    """

    def __init__(self, layout: Layout) -> None:
        # Computed at the start, so that changes made meanwhile are prepared the next time.
        self.code = digest_of_code()
        self.stamp = layout.var / "prepared.json"
        self.results = (layout.postgres / "PG_VERSION", layout.var / "static")

    def is_current(self) -> bool:
        """Return whether this VAR was prepared by this code,
        and database and static files are still there.
        """
        exists = all(path.exists() for path in self.results)
        return exists and self._read().get("code") == self.code

    def logins(self) -> str:
        return self._read()["logins"]

    def remember(self, logins: str) -> None:
        new = self.stamp.with_suffix(".new")
        new.write_text(json.dumps({"code": self.code, "logins": logins}))
        new.replace(self.stamp)

    def forget(self) -> None:
        self.stamp.unlink(missing_ok=True)

    def _read(self) -> dict[str, str]:
        with suppress(OSError, ValueError):
            return dict(json.loads(self.stamp.read_text()))
        return {}


def digest_of_code() -> str:
    """Return a digest of name, size and time of each file of `CODE`."""
    digest = hashlib.sha256(sys.version.encode())
    for name in CODE:
        place = ROOT / name
        for path in [place, *sorted(place.rglob("*"))]:
            if path.is_file() and path.suffix != ".pyc":
                status = path.stat()
                digest.update(f"{path} {status.st_size} {status.st_mtime_ns}\n".encode())
    return digest.hexdigest()


class Parent:
    """The parent `make`.

    It forwards SIGTERM, but after a SIGINT to itself alone it waits for us forever.
    """

    def __init__(self) -> None:
        self.caught = self._catches_interrupt()

    def was_interrupted(self) -> bool:
        return self.caught and not self._catches_interrupt()

    def _catches_interrupt(self) -> bool:
        try:
            status = Path(f"/proc/{os.getppid()}/status").read_text()
        except OSError:
            return False
        caught = re.search(r"^SigCgt:\s*([0-9a-f]+)$", status, re.MULTILINE)
        if caught is None or not status.startswith("Name:\tmake\n"):
            return False
        mask = int(caught[1], 16)
        return bool(mask >> (signal.SIGINT - 1) & 1)


def demo_settings(port: int, layout: Layout, database_url: str, redis_url: str) -> dict[str, str]:
    """Return the portal's settings for a demo: everything under VAR, plain HTTP on loopback."""
    binaries = Path(sys.executable).parent
    simulation = layout.var / "simulation"
    return {
        "PORT": str(port),
        "PATH": f"{binaries}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "PYTHONUNBUFFERED": "1",
        # a demo on loopback may
        "PYTHONWARNINGS": "ignore:You're running the worker with superuser privileges",
        "SECRET_KEY": _secret(layout.var / "secret"),
        "DATABASE_URL": database_url,
        "REDIS_URL": redis_url,
        "PORTAL_URL": f"http://localhost:{port}",
        "ALLOWED_HOSTS": "127.0.0.1",
        "DEMO": "true",
        "VAR_DIR": str(layout.var),
        "STATIC_DIR": str(layout.var / "static"),
        "LOG_ROOTS": str(simulation),
        "DATASET_CATALOGUE": f"file:{simulation / CLUSTER / 'datasets.json'}",
        "CAPTURE_CLUSTER": CLUSTER,
        "CAPTURE_SCHEDULER": "simulated",
        "CAPTURE_SPOOL": str(simulation / CLUSTER / "spool"),
        "CAPTURE_JOURNAL": str(layout.var / "journal"),
    }


def _secret(path: Path) -> str:
    """Return the secret key of this VAR, created at the first start."""
    if not path.exists():
        new = path.with_suffix(".new")
        new.touch(mode=0o600)
        new.write_text(secrets.token_urlsafe(64))
        new.replace(path)
    return path.read_text().strip()


def read_procfile(path: Path) -> dict[str, str]:
    """Return the commands of a Procfile by name."""
    commands = {}
    for line in path.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            name, _, command = line.partition(":")
            commands[name.strip()] = command.strip()
    return commands


def main() -> int:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    try:
        port, layout = claim.parse_options(sys.argv[1:])
        lock = claim.take_over() or claim.claim(port, layout)
    except SetupError as error:
        return fail(error)
    watchdog = guard(layout.run, keep_open=(lock,))
    run = Run(port, layout)
    run.supervisor.listen()
    status = 0
    try:
        run.go()
    except Stopped:
        say("stopping")
    except SetupError as error:
        status = fail(error)
    finally:
        run.supervisor.stop()
        if watchdog.stdin:
            watchdog.stdin.close()
        watchdog.wait()
        layout.leave()
    if status == 0:
        say("stopped")
    return status


if __name__ == "__main__":
    sys.exit(main())
