"""A rolling upgrade of one or more hosts by `upgrade.sh`, while the portal is used.

Each host has a web server, a worker and a beat, in a directory of its own; they share the database
and the queue. One capture hands jobs over by the load balancer.
"""

import json
import os
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from tests.upgrade import databases
from tests.upgrade.balancer import Balancer
from tests.upgrade.installation import Site, make_release
from tests.upgrade.load import SETUP, Answer, Load, count_effects

OLD, NEW = "99.0.0", "99.1.0"
#: A column that the release before does not name in its INSERTs.
ADDITION = "ALTER TABLE statusboard_announcement ADD mood text NOT NULL DEFAULT 'good'"
WAIT_SECONDS = 90


@dataclass(frozen=True)
class Outcome:
    """What a run did. `steps` are the seconds of each step by its name."""

    steps: dict[str, float]
    answers: list[Answer]
    failures: list[Answer]
    posted: dict[str, int]
    jobs: dict[str, int]
    captured_jobs: int
    refused_connections: int
    outputs: list[str]


class RollingRun:
    """Hosts on a migrated database; `base` is a directory with a short path.

    `source` is the code of the release before; by default it is this one.
    """

    def __init__(
        self, base, database, *, hosts, redis_url, source=databases.ROOT, pause_seconds=0.5
    ):
        self.base, self.database, self.pause_seconds = base, database, pause_seconds
        self.sites, self.steps, self.outputs = [], {}, []
        sockets = [base / f"{number}/web.sock" for number in range(hosts)]
        self.balancer = Balancer(sockets)
        self.address = f"http://127.0.0.1:{self.balancer.port}"
        for number in range(hosts):
            directory = base / str(number)
            directory.mkdir()
            settings = {"REDIS_URL": redis_url, "PORTAL_URL": self.address}
            site = Site(directory, database, **settings)
            site.environment["OPSPORTAL_TEST_BEAT"] = "yes"
            site.install(OLD, source=source)
            collect = ("collectstatic", "--noinput", "--verbosity", "0")
            site.run(databases.ROOT / "deploy/opsportal-manage", *collect)
            self.sites.append(site)
        self.new = make_release(base / "new", NEW, ADDITION)
        self.spool = base / "spool"
        self.spool.mkdir()

    def close(self):
        for site in self.sites:
            site.run("systemctl", "stop")
        self.balancer.close()

    def upgrade(self):
        """Upgrade all hosts and capture under load, and go back on the first."""
        first = self.sites[0]
        secrets = json.loads(first.manage(SETUP).splitlines()[-1])
        for site in self.sites:
            with self._step("start"):
                site.run("systemctl", "start", "opsportal.target")
                site.wait_until_ready()
        load = Load(self.balancer.port, secrets, self.spool, self.pause_seconds)
        with ExitStack() as stack:
            stack.callback(load.stop)
            capture = stack.enter_context(self._capture(first, secrets))
            load.start()
            for number, site in enumerate(self.sites):
                options = ["--joining"] if number else []
                with self._step(f"upgrade of host {number + 1}"):
                    self._call(site, "--yes", "--rolling", *options, self.new)
            with self._step("old capture with new portal"):
                self._wait_for_jobs(load)
            capture.terminate()
            assert capture.wait(WAIT_SECONDS) == 0
            stack.enter_context(self._capture(first, secrets))
            with self._step("way back of host 1"):
                self._call(first, "--back", "--rolling")
            with self._step("new capture with old portal"):
                self._wait_for_jobs(load)
            load.stop()
            with self._step("rest of the jobs"):
                self._wait_for_jobs(load)
        posted, jobs = count_effects(self.database)
        return Outcome(
            steps=self.steps,
            answers=load.answers,
            failures=load.failures(),
            posted={title: posted[title] for title in load.posted},
            jobs={str(number): jobs[str(number)] for number in range(1, load.jobs + 1)},
            captured_jobs=jobs.total(),
            refused_connections=self.balancer.refused,
            outputs=self.outputs,
        )

    def _call(self, site, *options):
        self.outputs.append(site.upgrade(*options))

    @contextmanager
    def _step(self, name):
        began = time.monotonic()
        yield
        self.steps[name] = self.steps.get(name, 0) + time.monotonic() - began

    @contextmanager
    def _capture(self, site, secrets):
        """Run the capture of the release in use on this host, on the journal of all."""
        command = [sys.executable, "-m", "opsportal", "capture", "--cluster", "alps"]
        environment = os.environ | {
            "ARCHIVE_PORTAL_TOKEN": secrets["capture"],
            "CAPTURE_JOURNAL": str(self.base / "journal"),
            "CAPTURE_PORTAL": self.address,
            "MASKING_KEY": site.settings["MASKING_KEY"],
        }
        with (self.base / "capture.log").open("ab") as log:
            process = subprocess.Popen(
                [*command, "--scheduler", "slurm", "--spool", self.spool],
                cwd=(site.root / "current").resolve(),
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            yield process
        finally:
            process.terminate()
            process.wait(WAIT_SECONDS)

    def _wait_for_jobs(self, load):
        """Wait until the jobs that have been started by now are archived."""
        started = load.jobs
        end = time.monotonic() + WAIT_SECONDS
        while count_effects(self.database)[1].total() < started:
            assert time.monotonic() < end, (self.base / "capture.log").read_text()[-2000:]
            time.sleep(0.5)
