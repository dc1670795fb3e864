"""`manage.py simulate --cluster NAME --spool DIR`: run the simulated cluster of the demo."""

import signal
import threading
import time
from argparse import ArgumentParser
from dataclasses import fields
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from apps.demo.simulation.alerts import AlertSender
from apps.demo.simulation.catalogue import write_catalogue
from apps.demo.simulation.probes import ReportSender
from apps.demo.simulation.simulator import Config, Simulator
from apps.demo.simulation.world import CAMPAIGNS, DAY, HOUR, read_campaigns

# How often old files are removed and campaigns are read again.
_LOOK_SECONDS = 60
_LONGEST_SLEEP_SECONDS = 1.0


class Command(BaseCommand):
    """Writes a spool in Slurm's format, logs, accounting, and the truth about every failure."""

    help = (
        "Simulate a cluster: some days of history first, then live. A restart resumes where it "
        "stopped."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        add = parser.add_argument
        add("--cluster", required=True, help="name of the cluster")
        add("--spool", required=True, type=Path, help="spool directory to write, in Slurm's layout")
        add(
            "--dir",
            type=Path,
            dest="directory",
            help="logs, accounting and truth; default: VAR_DIR/simulation/CLUSTER",
        )
        add(
            "--seed",
            type=int,
            default=1,
            help="seed of everything random; kept from the first start",
        )
        add("--days", type=float, default=3, help="days of history to start with")
        add(
            "--jobs-per-day",
            type=float,
            default=1000,
            help="jobs per day at the start of the history",
        )
        add(
            "--speed",
            type=float,
            default=1,
            help="factor by which the number of jobs has grown by now",
        )
        help_age = "seconds that a spool entry outlives its job"
        add("--min-job-age", type=int, default=6 * HOUR, dest="min_job_age_seconds", help=help_age)
        add(
            "--keep-days", type=int, default=7, help="days after which logs and records are removed"
        )
        add(
            "--pace",
            type=float,
            default=1,
            help="factor by which jobs submitted by the portal run faster",
        )
        add("--calm", action="store_true", help="let no job submitted by the portal fail")
        add("--once", action="store_true", help="catch up to now, and exit")
        add("--feed-url", help="where to post alerts: http://HOST:PORT/api/v1/feeds/SOURCE/")
        add("--token-file", type=Path, help="its token; default: DIR/feed-token")

    def handle(self, *args: object, **options: Any) -> None:
        directory = options["directory"] or settings.VAR_DIR / "simulation" / options["cluster"]
        config = Config(
            **{field.name: options[field.name] for field in fields(Config)}
            | {"directory": directory}
        )
        stopped = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stopped.set())
        path = directory / "campaigns.json"
        simulator = Simulator(
            config, time.time(), read_campaigns(path) if path.exists() else CAMPAIGNS
        )
        try:
            self._catch_up(simulator, options["cluster"], stopped)
            if not options["once"]:
                sender = None
                if options["feed_url"]:
                    sender = _sender(simulator, config, options)
                _live(simulator, directory, stopped)
                if sender:
                    sender.stopped.set()
        finally:
            simulator.close()

    def _catch_up(self, simulator: Simulator, cluster: str, stopped: threading.Event) -> None:
        began = time.monotonic()
        now = time.time()
        missing = now - simulator.done
        for _ in simulator.advance(now):
            if stopped.is_set():
                return
        seconds = time.monotonic() - began
        self.stdout.write(
            f"{cluster}: {missing / HOUR:.1f} h written in {seconds:.1f} s; "
            f"{simulator.finished()} jobs have ended"
        )


def _sender(simulator: Simulator, config: Config, options: dict[str, Any]) -> AlertSender:
    since = simulator.origin - config.days * DAY
    cursor = config.directory / "alerts.cursor"
    token_file = options["token_file"] or config.directory / "feed-token"
    sender = AlertSender(simulator.trouble, options["feed_url"], token_file, cursor, since)
    sender.start()
    return sender


def _live(simulator: Simulator, directory: Path, stopped: threading.Event) -> None:
    campaigns = directory / "campaigns.json"
    report_sender = ReportSender()
    report_sender.start()
    looked = 0.0
    while not stopped.wait(
        max(0.0, min(_LONGEST_SLEEP_SECONDS, simulator.next_due() - time.time()))
    ):
        now = time.time()
        for _ in simulator.advance(now):
            if stopped.is_set():
                return
        for report in simulator.take_reports():
            report_sender.send(report)
        if now - looked > _LOOK_SECONDS:
            looked = now
            # The file may change at any time.
            if campaigns.exists():
                simulator.use(read_campaigns(campaigns), now)
            write_catalogue(directory / "datasets.json", now)
            simulator.prune(now)
