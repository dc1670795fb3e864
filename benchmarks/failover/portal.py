"""The portal on several machines, as docs/scale-out.md describes it, behind nginx on this one."""

import os
import subprocess
import sys
from http.client import HTTPException
from pathlib import Path
from urllib.request import Request, urlopen

from benchmarks.failover.database import PORT, find_program
from benchmarks.failover.network import GATEWAY, Machine
from dev.postgres import clean_environment
from dev.processes import ROOT, free_port
from tests.failover.haproxy import start_haproxy
from tests.failover.proxy import start_proxy

WEB_PORT = 8000
_CELERY = ("--quiet", "--workdir", str(ROOT), "-A", "opsportal")


class Portal:
    """Settings that all machines share, and the programs of each role."""

    def __init__(self, base: Path, database_url: str, redis_url: str, **more: str) -> None:
        self._base = base
        self._webs: list[Machine] = []
        self.port = free_port()
        self.address = f"http://{GATEWAY}:{self.port}"
        settings = {
            "SECRET_KEY": "a key for benchmarks, which guards nothing, and is long enough for that",
            "MASKING_KEY": "another key, which guards nothing either, and is long enough for that",
            "METRICS_TOKEN": "a token for benchmarks, which guards nothing and is long enough",
            "DATABASE_URL": database_url,
            "REDIS_URL": redis_url,
            "PORTAL_URL": self.address,
            "ALLOWED_HOSTS": f"{GATEWAY},127.0.0.1",
            "TRUST_PROXY": "true",
            "STATIC_DIR": str(base / "static"),
            "JOB_ARCHIVE": str(base / "months"),
        }
        settings |= more
        self._environment = clean_environment() | settings | {"PATH": os.environ["PATH"]}
        self.manage("migrate", "--verbosity", "0")
        self.manage("collectstatic", "--noinput", "--verbosity", "0")

    def environment(self, machine: Machine) -> dict[str, str]:
        return self._environment | {"VAR_DIR": str(machine.directory / "var")}

    def use_database(self, url: str) -> None:
        """Let all that starts from now on connect to PostgreSQL by another URL."""
        self._environment["DATABASE_URL"] = url

    def set_up_django(self) -> None:
        """Let this process use the portal's models."""
        os.environ |= self._environment | {
            "VAR_DIR": str(self._base / "var"),
            "DJANGO_SETTINGS_MODULE": "opsportal.settings",
        }
        import django

        django.setup()

    def manage(self, *arguments: str) -> str:
        """Run a command of the portal on this machine; return what it prints."""
        return self._python("manage.py", *arguments)

    def run(self, program: str) -> str:
        """Run a program on the portal's settings; return what it prints."""
        return self._python("-c", program)

    def _python(self, *arguments: str) -> str:
        environment = self._environment | {
            "VAR_DIR": str(self._base / "var"),
            "DJANGO_SETTINGS_MODULE": "opsportal.settings",
        }
        command = [sys.executable, *arguments]
        return subprocess.run(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True
        ).stdout

    def serve_web(self, machine: Machine) -> None:
        arguments = ["opsportal.wsgi", "--bind", f"{machine.address}:{WEB_PORT}", "--workers", "1"]
        arguments += ["--threads", "4", "--chdir", str(ROOT), "--no-control-socket"]
        arguments += ["--config", str(ROOT / "gunicorn.conf.py"), "--log-level", "warning"]
        machine.serve("web", _module("gunicorn", *arguments), self.environment(machine))
        self._webs.append(machine)

    def is_web_whole(self) -> bool:
        """Whether all web servers answer, each asked without the proxy."""
        return all(_is_healthy(machine) for machine in self._webs)

    def serve_work(self, machine: Machine) -> None:
        """Start two workers of all queues, as the Procfile has them, and a beat."""
        self.serve_worker(machine, "default,harvest", concurrency=1)
        self.serve_worker(machine, "archive", concurrency=1)
        schedule = str(machine.directory / "schedule")
        beat = ["beat", "--pidfile=", "--schedule", schedule, "--loglevel", "INFO"]
        machine.serve("beat", _module("celery", *_CELERY, *beat), self.environment(machine))

    def serve_worker(self, machine: Machine, queues: str, *, concurrency: int) -> None:
        """Start a worker, whose name is that of its first queue, `@`, and that of its machine."""
        name = queues.partition(",")[0]
        worker = ["worker", "--queues", queues, "--concurrency", str(concurrency)]
        worker += ["--hostname", f"{name}@{machine.name}", "--without-gossip", "--without-mingle"]
        environment = self.environment(machine)
        machine.serve(f"worker-{name}", _module("celery", *_CELERY, *worker), environment)

    def serve_capture(self, machine: Machine, spool: Path, token: str) -> None:
        """Start a capture with a journal of its own on the spool that all captures share."""
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "ARCHIVE_PORTAL_TOKEN": token,
            "CAPTURE_JOURNAL": str(machine.directory / "journal"),
            "CAPTURE_PORTAL": self.address,
            "MASKING_KEY": self._environment["MASKING_KEY"],
        }
        arguments = ["capture", "--cluster", "alps", "--scheduler", "slurm", "--spool", str(spool)]
        machine.serve("capture", _module("opsportal", *arguments), environment)

    def serve_proxy(self, hosts: list[Machine]) -> None:
        """Start nginx on this machine."""
        listen = [f"{GATEWAY}:{self.port}", f"127.0.0.1:{self.port}"]
        servers = [f"{host.address}:{WEB_PORT}" for host in hosts]
        start_proxy("nginx", self._base / "nginx", self._base / "run", listen, servers)

    def serve_haproxy(self, hosts: list[Machine], databases: list[Machine]) -> None:
        """Start HAProxy on this machine, before these web servers and servers of PostgreSQL."""
        start_haproxy(
            find_program("haproxy"),
            self._base / "haproxy",
            self._base / "run",
            listen=[f"{GATEWAY}:{self.port}", f"127.0.0.1:{self.port}"],
            web_servers=[f"{host.address}:{WEB_PORT}" for host in hosts],
            database=f"{GATEWAY}:{PORT}",
            databases=[database.address for database in databases],
        )


def _is_healthy(machine: Machine) -> bool:
    request = Request(f"http://{machine.address}:{WEB_PORT}/healthz", headers={"Host": GATEWAY})
    try:
        with urlopen(request, timeout=2) as answer:
            return answer.status == 200
    except (OSError, HTTPException):
        return False


def _module(name: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", name, *arguments]
