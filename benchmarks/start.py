"""How long the portal takes to start: `python -m benchmarks.start [--rounds N]`.

Each round clones the project, runs `make run` in the clone with no package cached, asks for the
first page, stops it, and runs it again. While the demo runs, capture starts for the first time with
a spool of its own. Then, with nothing beside them, come the imports of each process and `migrate`
on an empty database. Seconds are medians of the rounds.
"""

import argparse
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import defaultdict
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median

from benchmarks import capture_start
from benchmarks.database import database
from dev.checks import PRODUCTION
from dev.processes import free_port

ROOT = Path(__file__).parents[1]
LONGEST_SECONDS = 300
READY = re.compile(r"^\[ *[\d.]+ s\] ready: ")
#: What each process imports before its first work.
IMPORTS = {
    "manage.py check": ["manage.py", "check"],
    "web": ["-c", "import opsportal.wsgi"],
    "worker": ["-c", "from opsportal.celery import app; app.Worker(pool='prefork', concurrency=1)"],
    "beat": [
        "-c",
        "from opsportal.celery import app; app.Beat().init_loader()",
    ],
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    measured = defaultdict(list)
    for _ in range(arguments.rounds):
        base = Path(tempfile.mkdtemp(prefix="opsportal-benchmark-"))
        try:
            for name, seconds in one_round(base).items():
                measured[name].append(round(seconds, 2))
        finally:
            shutil.rmtree(base)
    figures = {
        name: {"median": median(seconds), "rounds": seconds} for name, seconds in measured.items()
    }
    print(json.dumps({"load_before": round(load, 1), **figures}, indent=2))


def one_round(base):
    """Return the seconds of one round by what was measured."""
    checkout = base / "checkout"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(checkout)], check=True)
    environment = clean_environment(base)
    seconds = {}
    with portal(checkout, environment) as first_page:
        seconds["first start"] = first_page
        seconds["start of capture, beside the demo"], _ = capture_start.first_start(
            base / "capture"
        )
    with portal(checkout, environment) as first_page:
        seconds["second start"] = first_page
    python = checkout / ".venv/bin/python"
    for name, command in IMPORTS.items():
        wall, cpu = run(checkout, environment | PRODUCTION, [str(python), "-W", "ignore", *command])
        seconds |= {f"{name}, wall": wall, f"{name}, CPU": cpu}
    wall, cpu = migrate(checkout, python, environment)
    return seconds | {
        "migrate on an empty database, wall": wall,
        "migrate on an empty database, CPU": cpu,
    }


def clean_environment(base):
    """Return an environment in which nothing is cached and no uv is on the path."""
    cache = {
        "XDG_CACHE_HOME": str(base / "cache"),
        "UV_CACHE_DIR": str(base / "uv"),
        "PIP_NO_CACHE_DIR": "1",
    }
    ours = str(Path(sys.executable).parent)
    path = os.pathsep.join(entry for entry in os.environ["PATH"].split(os.pathsep) if entry != ours)
    unwanted = (
        "VIRTUAL_ENV",
        "DATABASE_URL",
        "REDIS_URL",
        "MAKEFLAGS",
        "MAKELEVEL",
        "OPSPORTAL_BEGAN_AT",
    )
    kept = {name: value for name, value in os.environ.items() if name not in unwanted}
    return kept | cache | {"PATH": path}


@contextmanager
def portal(checkout, environment):
    """Run the portal in a checkout; give the seconds until its first page was read."""
    port = free_port()
    began = time.monotonic()
    command = ["make", "run", f"PORT={port}"]
    run_ = subprocess.Popen(
        command,
        cwd=checkout,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        wait_for_line(run_, READY)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=30) as page:
            page.read()
        yield time.monotonic() - began
    finally:
        with suppress(ProcessLookupError):
            os.killpg(run_.pid, signal.SIGINT)
        run_.communicate(timeout=60)


def wait_for_line(process, pattern):
    """Read the output of a process up to a line. Raises `RuntimeError` if it ends before."""
    until = time.monotonic() + LONGEST_SECONDS
    for line in process.stdout:
        print(line, end="", file=sys.stderr)
        if pattern.match(line):
            return
        if time.monotonic() > until:
            break
    raise RuntimeError(f"no line {pattern.pattern}")


def run(checkout, environment, command):
    """Run a command and return its seconds of wall and CPU time."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.monotonic()
    subprocess.run(command, cwd=checkout, env=environment, check=True, stdout=subprocess.DEVNULL)
    wall = time.monotonic() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def migrate(checkout, python, environment):
    """Return the seconds of `migrate` on an empty database of its own."""
    with database() as (_, url):
        settings_of_database = PRODUCTION | {"DATABASE_URL": url}
        command = [str(python), "-W", "ignore", "manage.py", "migrate"]
        return run(checkout, environment | settings_of_database, command)


if __name__ == "__main__":
    main()
