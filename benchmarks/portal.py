"""PostgreSQL on disk with fsync, Valkey, web, workers, and `manage.py capture`,
for the benchmarks of the archive.
"""

import os
import re
import shlex
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import psycopg

from benchmarks.database import database, settings
from dev.processes import free_port, spawn
from dev.run import read_procfile
from dev.valkey import Valkey

ROOT = Path(__file__).parents[1]
SIZES = ("Rss", "Anonymous")
FILES_EVERY = 10  # samples: they change little, and take longer to count
PROCESSES = ("reader", "journal")  # of capture
TABLES = ("archive_blob", "archive_archivedjob", "archive_dictionary")


@contextmanager
def portal():
    """Yield a portal that is deleted after the benchmark."""
    with database() as (base, url):
        (base / "valkey").mkdir()
        valkey = Valkey(base / "valkey", base)
        spawn(
            "valkey",
            valkey.command(),
            base / "run",
            stdout=subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
        )
        valkey.wait_ready()
        yield Portal(base, url, valkey.url())


class Portal:
    """Captures spools into a new journal and store."""

    def __init__(self, base, url, broker):
        self.base = base
        self.url = url
        self.journal = base / "var/journal/benchmark/journal.sqlite"
        self.port = free_port()
        self.environment = (
            os.environ
            | settings(base, url)
            | {"REDIS_URL": broker, "PORTAL_URL": f"http://127.0.0.1:{self.port}"}
        )
        self.store = psycopg.connect(url, autocommit=True)
        self.manage("migrate", "-v0", "--skip-checks")

    def manage(self, *arguments):
        command = [sys.executable, ROOT / "manage.py", *map(str, arguments)]
        return subprocess.run(
            command, env=self.environment, check=True, capture_output=True, text=True
        ).stdout

    @contextmanager
    def capturing(self, spool):
        """Run capture, and yield the measurement of its memory."""
        command = [
            sys.executable,
            ROOT / "manage.py",
            "capture",
            "--cluster",
            "benchmark",
            "--scheduler",
            "slurm",
        ]
        capture = subprocess.Popen(
            [*command, "--spool", spool], env=self.environment, stdout=subprocess.PIPE
        )
        capture.stdout.readline()
        memory = Memory(capture.pid)
        try:
            yield memory
        finally:
            memory.stop()
            capture.send_signal(signal.SIGTERM)
            capture.communicate(timeout=60)

    @contextmanager
    def serving(self):
        """Run the web processes of the Procfile."""
        line = read_procfile(ROOT / "Procfile")["web"]
        command = [
            sys.executable,
            "-m",
            *shlex.split(line.replace("${PORT:-8000}", str(self.port))),
        ]
        with (self.base / "web.log").open("ab") as log:
            running = subprocess.Popen(
                command, env=self.environment, cwd=ROOT, stdout=log, stderr=log
            )
        try:
            wait_until(self._answers)
            yield running
        finally:
            running.terminate()
            running.wait(60)

    def _answers(self):
        try:
            with urlopen(f"{self.environment['PORTAL_URL']}/healthz", timeout=5):
                return True
        except OSError:
            return False

    @contextmanager
    def working(self, processes):
        """Run workers of the archive with this number of processes."""
        worker = [
            "worker",
            "--queues",
            "archive",
            "--concurrency",
            str(processes),
            "--loglevel",
            "WARNING",
        ]
        command = [sys.executable, "-m", "celery", "--quiet", "-A", "opsportal", *worker]
        with (self.base / "worker.log").open("ab") as log:
            running = subprocess.Popen(
                command, env=self.environment, cwd=ROOT, stdout=log, stderr=log
            )
        try:
            yield running
        finally:
            running.terminate()
            running.wait(60)

    def wake_worker(self):
        """Send one message to the queue of the workers."""
        command = [sys.executable, "-m", "celery", "--quiet", "-A", "opsportal", "call"]
        subprocess.run(
            [*command, "archive.archive_batches", "--queue", "archive"],
            env=self.environment,
            cwd=ROOT,
            check=True,
            stdout=subprocess.DEVNULL,
        )

    def journaled(self):
        """Return how many jobs the journal has received."""
        with sqlite3.connect(f"file:{self.journal}?mode=ro", uri=True) as database:
            row = database.execute(
                "SELECT seq FROM sqlite_sequence WHERE name = 'batch'"
            ).fetchone()
            return row[0] if row else 0

    def durable(self):
        """Return how many jobs were handed over to the database."""
        return self.store.execute(
            "SELECT coalesce(sum(sequence), 0) FROM archive_intakejournal"
        ).fetchone()[0]

    def stored(self):
        return self.store.execute("SELECT count(*) FROM archive_archivedjob").fetchone()[0]

    def store_bytes(self):
        """Return the size of tables and indexes on disk, without the index of words."""
        self.store.execute("VACUUM")
        return sum(
            self.store.execute("SELECT pg_total_relation_size(%s)", [table]).fetchone()[0]
            for table in TABLES
        )


class Memory:
    """Measures the memory of a process and its descendants, each page once.

    Pages of programs and libraries count in full, even if other processes share them; other shared
    pages count proportionally.
    """

    def __init__(self, pid):
        self.pid = pid
        self._stopped = threading.Event()
        self.samples = []
        self.by_process = []
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    @property
    def peak_mb(self):
        return max(self.samples)

    def stop(self):
        self._stopped.set()
        self._thread.join()

    def _watch(self):
        while not self._stopped.wait(0.5):
            pids = family(self.pid)
            if len(self.samples) % FILES_EVERY == 0:
                files = files_kb(pids)
            taken = [own_kb(pid) for pid in pids]
            self.samples.append(round((files + sum(taken)) / 1024))
            parts = {name: round(kb / 1024) for name, kb in zip(PROCESSES, taken, strict=False)}
            self.by_process.append(parts | {"files": round(files / 1024)})


def cpu_seconds(pid):
    """Return the CPU seconds of each process of capture, by its role."""
    ticks = os.sysconf("SC_CLK_TCK")
    stats = [
        Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        for process in family(pid)
    ]
    return {
        name: sum(map(int, stat[11:13])) / ticks
        for name, stat in zip(PROCESSES, stats, strict=False)
    }


def family(pid):
    """Return the process and its descendants."""
    pids = [pid]
    for parent in pids:
        for task in Path(f"/proc/{parent}/task").glob("*/children"):
            try:
                pids += map(int, task.read_text().split())
            except OSError:
                continue
    return pids


def own_kb(pid):
    """Return the anonymous memory of a process, shared pages proportionally."""
    return sum(
        map(
            int,
            re.findall(r"^Pss_(?:Anon|Shmem):\s+(\d+)", _read(pid, "smaps_rollup"), re.MULTILINE),
        )
    )


def files_kb(pids):
    """Return the memory of these processes that is mapped from files, each part of a file once."""
    found = {}
    for pid in pids:
        for mapping in re.split(
            r"^(?=[0-9a-f]+-[0-9a-f]+ )", _read(pid, "smaps"), flags=re.MULTILINE
        )[1:]:
            _, _, offset, device, inode, *_ = mapping.partition("\n")[0].split()
            resident, anonymous = (
                int(re.search(rf"^{name}:\s+(\d+)", mapping, re.MULTILINE)[1]) for name in SIZES
            )
            if inode != "0":
                part = device, inode, offset
                found[part] = max(found.get(part, 0), resident - anonymous)
    return sum(found.values())


def _read(pid, name):
    try:
        return Path(f"/proc/{pid}/{name}").read_text()
    except OSError:
        return ""


def wait_until(reached, *, timeout=600, step=0.05):
    """Return the time at which it was true, by `time.monotonic`."""
    end = time.monotonic() + timeout
    while not reached():
        if time.monotonic() > end:
            raise TimeoutError
        time.sleep(step)
    return time.monotonic()
