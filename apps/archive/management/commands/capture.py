"""`manage.py capture`: copy every job out of a scheduler's spool before the scheduler deletes it."""

import gc
import logging
import re
import signal
import sys
import threading
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import connection
from django.utils import timezone

from apps.archive.capture.capture import PATIENCE_SECONDS, Capture, CaptureStatus
from apps.archive.capture.isolation import Nursery
from apps.archive.capture.journal import Journal, JournalError
from apps.archive.sinks.base import BadSink
from apps.archive.sinks.registry import open_sink
from apps.clusters.schedulers.base import Spool, SpoolError
from apps.clusters.schedulers.registry import SCHEDULERS
from apps.core.masking import Masker
from apps.core.plugins import UnknownPlugin
from apps.core.services import beat_heart

logger = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 10.0
SWITCH_SECONDS = 0.0005  # the reader makes many small calls: it must not wait 5 ms after each for a busy drain
_CLUSTER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_MOST_TOLD = 20


class Command(BaseCommand):
    """Runs until SIGTERM or SIGINT; with --once, until spool and journal are drained."""

    help = "Capture job scripts and environments from a scheduler's spool into the archive."
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--cluster", default=settings.CAPTURE_CLUSTER, help="name of the cluster")
        parser.add_argument("--scheduler", default=settings.CAPTURE_SCHEDULER, help="its scheduler (%(default)s)")
        parser.add_argument("--spool", type=Path, default=settings.CAPTURE_SPOOL, help="its spool directory")
        parser.add_argument(
            "--journal",
            type=Path,
            default=settings.CAPTURE_JOURNAL,
            help="directory of the journals, one in it for each cluster (%(default)s)",
        )
        parser.add_argument(
            "--sink",
            action="append",
            dest="sinks",
            metavar="URL",
            help="where captured jobs go; may be repeated (ARCHIVE_SINKS)",
        )
        parser.add_argument("--once", action="store_true", help="end when spool and journal are drained")
        parser.add_argument(
            "--patience-seconds",
            type=float,
            default=PATIENCE_SECONDS,
            help="with --once, give up when nothing has moved for so long (%(default)s)",
        )
        parser.add_argument(
            "--rescan-seconds", type=float, default=10.0, help="scan the whole spool so often (%(default)s)"
        )

    def handle(
        self,
        *,
        cluster: str,
        scheduler: str,
        spool: Path | None,
        journal: Path,
        sinks: list[str] | None,
        once: bool,
        patience_seconds: float,
        rescan_seconds: float,
        **_: Any,
    ) -> None:
        if not _CLUSTER.fullmatch(cluster or ""):
            raise CommandError("Name the cluster, in letters, digits, . _ and -: --cluster NAME or CAPTURE_CLUSTER.")
        opened = _open_spool(cluster, scheduler, spool)
        sys.setswitchinterval(SWITCH_SECONDS)
        gc.set_threshold(50_000)  # what passes through is many small objects without cycles
        with (
            closing(_nursery(sinks or settings.ARCHIVE_SINKS)) as nursery,
            closing(_journal(journal / cluster, nursery)) as held,
        ):
            capture = Capture(
                cluster=cluster,
                scheduler=scheduler,
                spool=opened,
                journal=held,
                sinks=nursery.sinks,
                masker=Masker(names=settings.CAPTURE_MASK_NAMES, key=settings.MASKING_KEY.encode()),
                clock=timezone.now,
            )
            with _stopped_by_signals(capture):
                if once:
                    capture.run_once(patience_seconds=patience_seconds)
                    self._tell(cluster, capture.status())
                else:
                    self._run(cluster, capture, rescan_seconds)

    def _run(self, cluster: str, capture: Capture, rescan_seconds: float) -> None:
        stopping = threading.Event()
        heart = threading.Thread(target=_beat, args=(f"capture {cluster}", capture, stopping), daemon=True)
        heart.start()
        self.stdout.write(f"capturing the jobs of {cluster}")
        self.stdout.flush()
        capture.run(rescan_seconds=rescan_seconds)
        stopping.set()
        self.stdout.write(f"stopped; captured {capture.captured} jobs of {cluster}")

    def _tell(self, cluster: str, status: CaptureStatus) -> None:
        """Say what was captured. Raises `CommandError` where something that can be read is not in the archive."""
        self.stdout.write(f"captured {status.captured} jobs of {cluster}")
        for path, reason in status.unreadable.items():
            self.stderr.write(f"not readable: {_printable(path)}: {_printable(reason)}")
        for path in status.incomplete:
            self.stderr.write(f"not written to its end: {_printable(path)}")
        problems = [f"{s.name}: {s.behind} jobs stay in the journal: {s.last_error}" for s in status.sinks if s.behind]
        problems += [f"{s.name} refuses job {job_id}: {why}" for s in status.sinks for job_id, why in s.refused]
        if status.last_error or status.waiting > len(status.incomplete):
            problems.append(f"the spool was not captured whole: {status.last_error or 'stopped before the end'}")
        if problems:
            raise CommandError("\n".join(problems))


def _open_spool(cluster: str, scheduler: str, directory: Path | None) -> Spool:
    if directory is None:
        raise CommandError("Name the spool directory: --spool DIR or CAPTURE_SPOOL.")
    try:
        return SCHEDULERS.get(scheduler)(cluster, {}).spool(directory.absolute())
    except (UnknownPlugin, SpoolError) as error:
        raise CommandError(str(error)) from error


def _nursery(urls: Sequence[str]) -> Nursery:
    try:
        return Nursery([open_sink(url) for url in urls])
    except BadSink as error:
        raise CommandError(str(error)) from error


def _journal(directory: Path, nursery: Nursery) -> Journal:
    try:
        return Journal(directory, sinks=[sink.name for sink in nursery.sinks])
    except JournalError as error:
        raise CommandError(str(error)) from error


@contextmanager
def _stopped_by_signals(capture: Capture) -> Iterator[None]:
    before = {number: signal.signal(number, lambda *_: capture.stop()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _beat(name: str, capture: Capture, stopping: threading.Event) -> None:
    """Show on the health page how capture does, for as long as it runs."""
    while True:
        try:
            beat_heart(name=name, at=timezone.now(), detail=_detail(capture.status()))
        except Exception as error:  # the database is away: capture goes on without it
            logger.debug("no heartbeat: %s", error)
            connection.close()
        if stopping.wait(HEARTBEAT_SECONDS):
            connection.close()
            return


def _detail(status: CaptureStatus) -> dict[str, Any]:
    at = timezone.now()
    return {
        "captured": status.captured,
        "waiting": status.waiting,
        "last_error": _printable(status.last_error),
        "unreadable": {_printable(path): _printable(why) for path, why in [*status.unreadable.items()][:_MOST_TOLD]},
        "incomplete": [_printable(path) for path in status.incomplete[:_MOST_TOLD]],
        "sinks": {
            sink.name: {
                "behind": sink.behind,
                "lag_seconds": round((at - sink.oldest_at).total_seconds(), 1) if sink.oldest_at else 0,
                "last_error": _printable(sink.last_error),
                "refused": len(sink.refused),
            }
            for sink in status.sinks
        },
    }


def _printable(value: object) -> str:
    """Names in a spool may hold anything: control characters and bytes that are no text are shown escaped."""
    return str(value).encode("unicode_escape", "backslashreplace").decode("ascii")
