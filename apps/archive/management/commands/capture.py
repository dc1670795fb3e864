"""`manage.py capture`: copy every job out of a scheduler's spool before the scheduler deletes it."""

import os
import re
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from apps.archive.capture.capture import PATIENCE_SECONDS
from apps.archive.capture.journal.journal import JournalError
from apps.archive.capture.main import CaptureFailed, run
from apps.archive.capture.plan import Plan
from apps.archive.capture.watch.base import Watch
from apps.archive.management.plan import plan_capture
from apps.archive.management.refused import drop_refused, forget_sink, list_refused, retry_refused
from apps.archive.sinks.base import BadSink
from apps.archive.sinks.registry import open_sinks

_PROGRAM = Path(__file__).parents[4] / "manage.py"
_CLUSTER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


class Command(BaseCommand):
    """Runs until SIGTERM or SIGINT; with --once, until spool and journal are drained."""

    help = "Capture job scripts and environments from a scheduler's spool into the archive."
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--cluster", default=settings.CAPTURE_CLUSTER, help="name of the cluster")
        parser.add_argument(
            "--scheduler", default=settings.CAPTURE_SCHEDULER, help="scheduler of the cluster (default: %(default)s)"
        )
        parser.add_argument(
            "--spool", type=Path, default=settings.CAPTURE_SPOOL, help="spool directory of the scheduler"
        )
        parser.add_argument(
            "--journal",
            type=Path,
            default=settings.CAPTURE_JOURNAL,
            help="directory of the journals, one per cluster (default: %(default)s)",
        )
        parser.add_argument(
            "--sink",
            action="append",
            dest="sinks",
            metavar="URL",
            help="sink for captured jobs; repeatable (default: ARCHIVE_SINKS)",
        )
        what = parser.add_mutually_exclusive_group()
        what.add_argument("--once", action="store_true", help="exit when spool and journal are drained")
        what.add_argument("--refused", action="store_true", help="only list jobs rejected by sinks, with reasons")
        what.add_argument("--retry-refused", action="store_true", help="only retry jobs rejected by sinks")
        what.add_argument("--drop-refused", action="store_true", help="only discard jobs rejected by these sinks")
        what.add_argument(
            "--forget-sink", metavar="NAME", help="only discard jobs waiting for a sink that is no longer configured"
        )
        parser.add_argument("--job", default="", metavar="ID", help="with --drop-refused: only this job")
        parser.add_argument(
            "--patience-seconds",
            type=float,
            default=PATIENCE_SECONDS,
            help="with --once, exit after this time without progress (default: %(default)s)",
        )
        parser.add_argument(
            "--rescan-seconds", type=float, default=10.0, help="interval of full spool scans (default: %(default)s)"
        )
        parser.add_argument(
            "--watch",
            choices=[*Watch],
            default=settings.CAPTURE_WATCH,
            help="source of file events: inotify, polling, or auto, which adds polling on network file systems",
        )

    def handle(self, *, cluster: str, journal: Path, sinks: list[str] | None, **options: Any) -> None:
        if not _CLUSTER.fullmatch(cluster or ""):
            raise CommandError(
                "Set the cluster with --cluster NAME or CAPTURE_CLUSTER, using letters, digits, . _ and - only."
            )
        urls = sinks or settings.ARCHIVE_SINKS
        directory = journal / cluster
        try:
            if options["refused"]:
                list_refused(self, directory)
            elif options["retry_refused"]:
                retry_refused(self, directory, open_sinks(urls))
            elif options["drop_refused"]:
                drop_refused(self, directory, open_sinks(urls), options["job"])
            elif options["forget_sink"]:
                forget_sink(self, directory, open_sinks(urls), options["forget_sink"])
            else:
                self._capture(plan_capture(cluster, directory.absolute(), urls, **options))
        except (BadSink, JournalError, CaptureFailed) as error:
            raise CommandError(str(error)) from error

    def _capture(self, plan: Plan) -> None:
        """As a command of its own, give the place to a program without Django, which is much smaller."""
        if not getattr(self, "_called_from_command_line", False):
            run(plan, out=self.stdout.write, err=self.stderr.write)
            return
        self.stdout.flush()
        self.stderr.flush()
        command = [sys.executable, str(_PROGRAM), "capture", "--planned", str(plan.keep())]
        os.execv(command[0], command)  # noqa: S606 -- itself
