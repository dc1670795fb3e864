"""`manage.py capture`: copy every job out of a scheduler's spool before the scheduler deletes it."""

import os
import re
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from apps.archive.capture.capture import PATIENCE_SECONDS
from apps.archive.capture.delivery.drain import Drain
from apps.archive.capture.delivery.keeper import RETRY_SIGNAL
from apps.archive.capture.journal.journal import DeadLetters, Journal, JournalError, running_capture
from apps.archive.capture.main import CaptureFailed, run
from apps.archive.capture.plan import Plan
from apps.archive.capture.watch.base import Watch
from apps.archive.management.plan import plan_capture
from apps.archive.management.times import time_text
from apps.archive.sinks.base import BadSink, Sink, SinkUnavailable
from apps.archive.sinks.registry import open_sinks
from apps.archive.wire.report import printable

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
                self._list_refused(directory)
            elif options["retry_refused"]:
                self._retry_refused(directory, open_sinks(urls))
            elif options["drop_refused"]:
                self._drop_refused(directory, open_sinks(urls), options["job"])
            elif options["forget_sink"]:
                self._forget_sink(directory, open_sinks(urls), options["forget_sink"])
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

    def _list_refused(self, directory: Path) -> None:
        """Print a line for each. Raises `JournalError`."""
        count = 0
        with closing(DeadLetters(directory)) as letters:
            for letter in letters:
                facts = (letter.sink, letter.job_id, time_text(letter.submitted_at), letter.size_bytes, letter.reason)
                self.stdout.write("\t".join(map(printable, facts)))
                count += 1
        self.stderr.write(f"{count} refused")

    def _retry_refused(self, directory: Path, sinks: Sequence[Sink]) -> None:
        """Let the capture that runs try them again, or try them here. Raises `JournalError` and `CommandError`."""
        if (process := running_capture(directory)) is not None:
            os.kill(process, RETRY_SIGNAL)
            self.stdout.write(f"capture, process {process}, tries them again")
            return
        away = []
        with closing(Journal(directory, sinks=[sink.name for sink in sinks])) as journal:
            for sink in sinks:
                with closing(sink):
                    drain = Drain(journal=journal, sink=sink)
                    try:
                        drain.write_refused()
                    except SinkUnavailable as error:
                        away.append(f"{sink.name}: {error}")
                refused, _ = journal.refusals(sink.name, newest=0)
                self.stdout.write(f"{sink.name}: {drain.written} taken, {refused} refused")
        if away:
            raise CommandError("\n".join(away))

    def _drop_refused(self, directory: Path, sinks: Sequence[Sink], job_id: str) -> None:
        """Give up those of `sinks`, or of one job. Raises `JournalError`."""
        with closing(DeadLetters(directory)) as letters:
            for sink in sinks:
                self.stdout.write(f"{sink.name}: {letters.drop(sink=sink.name, job_id=job_id)} dropped")

    def _forget_sink(self, directory: Path, sinks: Sequence[Sink], name: str) -> None:
        """Give up what a sink lacks that is none of `sinks`. Raises `JournalError`, also where capture runs."""
        with closing(Journal(directory, sinks=[sink.name for sink in sinks])) as journal:
            behind, refused = journal.forget_sink(name)
        self.stdout.write(f"{name} is forgotten, with {behind} jobs that it lacked and {refused} that it had refused")
