"""Runs the simulated cluster of the demo: `manage.py simulate --cluster NAME --spool DIR`."""

import signal
import threading
import time
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from apps.demo.simulation.alerts import AlertSender
from apps.demo.simulation.simulator import Config, Simulator
from apps.demo.simulation.world import CAMPAIGNS, DAY, HOUR, Campaign, read_campaigns

_LOOK_SECONDS = 60  # how often old files are removed and new campaigns are looked for
_LONGEST_SLEEP_SECONDS = 1.0


class Command(BaseCommand):
    """Writes a spool in Slurm's format, job logs, accounting records, and the truth about every failure."""

    help = "Simulate a cluster: some days of history first, then live. Stopped and started again, it goes on."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--cluster", required=True, help="name of the cluster")
        parser.add_argument("--spool", required=True, type=Path, help="spool directory to write, in Slurm's layout")
        parser.add_argument(
            "--dir", type=Path, help="logs, accounting and truth; VAR_DIR/simulation/CLUSTER unless given"
        )
        parser.add_argument(
            "--seed", type=int, default=1, help="what is drawn follows from it; kept from the first start"
        )
        parser.add_argument("--days", type=float, default=3, help="days of history to begin with")
        parser.add_argument("--jobs-per-day", type=float, default=1000, help="how many jobs the history begins with")
        parser.add_argument("--speed", type=float, default=1, help="so many times more jobs there are by now")
        parser.add_argument("--min-job-age", type=int, default=6 * HOUR, help="seconds a spool entry outlives its job")
        parser.add_argument("--keep-days", type=int, default=7, help="days after which logs and records are removed")
        parser.add_argument("--pace", type=float, default=1, help="so many times as fast run jobs of the portal")
        parser.add_argument("--calm", action="store_true", help="let no job of the portal fail")
        parser.add_argument("--once", action="store_true", help="bring it up to now, and end")
        parser.add_argument("--feed-url", help="where to post alerts: http://HOST:PORT/api/v1/feeds/SOURCE/")
        parser.add_argument("--token-file", type=Path, help="its token; DIR/feed-token unless given")

    def handle(self, *args: object, **options: Any) -> None:
        directory = options["dir"] or settings.VAR_DIR / "simulation" / options["cluster"]
        config = Config(
            directory=directory,
            spool=options["spool"],
            seed=options["seed"],
            days=options["days"],
            jobs_per_day=options["jobs_per_day"],
            speed=options["speed"],
            min_job_age_seconds=options["min_job_age"],
            keep_days=options["keep_days"],
            pace=options["pace"],
            calm=options["calm"],
        )
        stopped = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stopped.set())
        campaigns = _Campaigns(directory / "campaigns.json")
        simulator = Simulator(config, time.time(), campaigns.read())
        try:
            self._catch_up(simulator, options["cluster"], stopped)
            if not options["once"]:
                sender = _sender(simulator, config, options)
                _live(simulator, campaigns, stopped)
                if sender:
                    sender.stopped.set()
        finally:
            simulator.close()

    def _catch_up(self, simulator: Simulator, cluster: str, stopped: threading.Event) -> None:
        began, now = time.monotonic(), time.time()
        missing = now - simulator.done
        for _ in simulator.advance(now):
            if stopped.is_set():
                return
        seconds = time.monotonic() - began
        self.stdout.write(
            f"{cluster}: {missing / HOUR:.1f} h written in {seconds:.1f} s; {simulator.finished()} jobs have ended"
        )


class _Campaigns:
    """The campaigns to submit: from a file where there is one, which may change at any time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.read_at = 0.0

    def read(self) -> tuple[Campaign, ...]:
        if not self.path.exists():
            return CAMPAIGNS
        self.read_at = self.path.stat().st_mtime
        return read_campaigns(self.path)

    def changed(self) -> bool:
        return self.path.exists() and self.path.stat().st_mtime != self.read_at


def _sender(simulator: Simulator, config: Config, options: dict[str, Any]) -> AlertSender | None:
    if not options["feed_url"]:
        return None
    since = simulator.origin - config.days * DAY
    cursor = config.directory / "alerts.cursor"
    token_file = options["token_file"] or config.directory / "feed-token"
    sender = AlertSender(simulator.trouble, options["feed_url"], token_file, cursor, since)
    sender.start()
    return sender


def _live(simulator: Simulator, campaigns: _Campaigns, stopped: threading.Event) -> None:
    looked = 0.0
    while not stopped.wait(max(0.0, min(_LONGEST_SLEEP_SECONDS, simulator.next_due() - time.time()))):
        now = time.time()
        for _ in simulator.advance(now):
            if stopped.is_set():
                return
        if now - looked > _LOOK_SECONDS:
            looked = now
            if campaigns.changed():
                simulator.use(campaigns.read(), now)
            simulator.prune(now)
