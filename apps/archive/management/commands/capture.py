"""`manage.py capture`: copy every job out of a scheduler's spool before the scheduler deletes it."""

import gc
import re
import signal
import sys
import threading
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, cast

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from apps.archive.capture.capture import PATIENCE_SECONDS, Capture, CaptureStatus
from apps.archive.capture.isolation import Nursery
from apps.archive.capture.journal import JournalError
from apps.archive.capture.keeper_process import KeeperProcess
from apps.archive.capture.keeping import RETIRED, RETRY_SIGNAL, KeeperDied
from apps.archive.capture.resources import SWITCH_SECONDS, give_memory_back, go_first
from apps.archive.capture.rules import KnownRules
from apps.archive.capture_report import printable
from apps.archive.management.heart import Heart, places_of
from apps.archive.management.refused import drop_refused, forget_sink, list_refused, retry_refused
from apps.archive.sinks.base import BadSink
from apps.archive.sinks.registry import open_sinks
from apps.clusters.schedulers.base import Spool, SpoolError
from apps.clusters.schedulers.registry import SCHEDULERS
from apps.core.masking import Masker, Rule
from apps.core.plugins import UnknownPlugin

_LOG_FORMAT = cast(dict[str, Any], settings.LOGGING["formatters"])["line"]["format"]
_CLUSTER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


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
        what = parser.add_mutually_exclusive_group()
        what.add_argument("--once", action="store_true", help="end when spool and journal are drained")
        what.add_argument("--refused", action="store_true", help="only list what sinks have refused, with the reasons")
        what.add_argument("--retry-refused", action="store_true", help="only give sinks again what they have refused")
        what.add_argument("--drop-refused", action="store_true", help="only give up what these sinks have refused")
        what.add_argument("--forget-sink", metavar="NAME", help="only give up what a sink no longer given still lacks")
        parser.add_argument("--job", default="", metavar="ID", help="with --drop-refused: of this job alone")
        parser.add_argument(
            "--patience-seconds",
            type=float,
            default=PATIENCE_SECONDS,
            help="with --once, give up when nothing has moved for so long (%(default)s)",
        )
        parser.add_argument(
            "--rescan-seconds", type=float, default=10.0, help="scan the whole spool so often (%(default)s)"
        )

    def handle(self, *, cluster: str, journal: Path, sinks: list[str] | None, **options: Any) -> None:
        if not _CLUSTER.fullmatch(cluster or ""):
            raise CommandError("Name the cluster, in letters, digits, . _ and -: --cluster NAME or CAPTURE_CLUSTER.")
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
                self._capture(cluster, directory, urls, **options)
        except (BadSink, JournalError, KeeperDied) as error:
            raise CommandError(str(error)) from error

    def _capture(
        self,
        cluster: str,
        directory: Path,
        urls: Sequence[str],
        *,
        scheduler: str,
        spool: Path | None,
        once: bool,
        patience_seconds: float,
        rescan_seconds: float,
        **_: Any,
    ) -> None:
        if not settings.MASKING_KEY:
            raise CommandError("MASKING_KEY is not set: without it, or SECRET_KEY, secrets could not be masked.")
        opened = _open_spool(cluster, scheduler, spool)
        sys.setswitchinterval(SWITCH_SECONDS)
        gc.set_threshold(50_000)  # what passes through is many small objects without cycles
        give_memory_back()
        with (
            closing(Nursery(open_sinks(urls))) as nursery,
            closing(KeeperProcess(directory, nursery, log_format=_LOG_FORMAT)) as keeper,
        ):
            go_first()
            heart = Heart(cluster=cluster, places=places_of(urls), rules=_known_rules(directory), masker=_masker)
            capture = Capture(
                cluster=cluster,
                scheduler=scheduler,
                spool=opened,
                keeper=keeper,
                masker=heart.masker(),
                clock=timezone.now,
            )
            with _told_by_signals(capture):
                if once:
                    capture.run_once(patience_seconds=patience_seconds)
                    self._tell_retired(capture.status())
                    self._tell(cluster, capture.status())
                else:
                    self._tell_retired(capture.status())
                    self._run(cluster, capture, heart, rescan_seconds)

    def _run(self, cluster: str, capture: Capture, heart: Heart, rescan_seconds: float) -> None:
        beating = threading.Thread(target=heart.beat_for, args=(capture,), daemon=True)
        beating.start()
        self.stdout.write(f"capturing the jobs of {cluster}")
        self.stdout.flush()
        capture.run(rescan_seconds=rescan_seconds)
        heart.stop()
        self.stdout.write(f"stopped; captured {capture.captured} jobs of {cluster}")

    def _tell_retired(self, status: CaptureStatus) -> None:
        for sink in status.sinks:
            if sink.retired:
                self.stderr.write(f"{sink.name}: {sink.behind} jobs behind, {sink.refused_count} refused: {RETIRED}")

    def _tell(self, cluster: str, status: CaptureStatus) -> None:
        """Say what was captured. Raises `CommandError` where something that can be read is not in the archive."""
        self.stdout.write(f"captured {status.captured} jobs of {cluster}")
        for path, reason in status.unreadable.items():
            self.stderr.write(f"not readable: {printable(path)}: {printable(reason)}")
        for path in status.incomplete:
            self.stderr.write(f"not written to its end: {printable(path)}")
        sinks = [sink for sink in status.sinks if not sink.retired]
        problems = [f"{s.name}: {s.behind} jobs stay in the journal: {s.last_error}" for s in sinks if s.behind]
        problems += [f"{s.name} refuses job {job_id}: {why}" for s in sinks for job_id, why in s.refused]
        problems += [f"{s.name} refuses {s.refused_count} jobs: see --refused" for s in sinks if s.refused]
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


def _masker(rules: Sequence[Rule]) -> Masker:
    return Masker(names=settings.CAPTURE_MASK_NAMES, key=settings.MASKING_KEY.encode(), rules=rules)


def _known_rules(directory: Path) -> KnownRules:
    try:
        return KnownRules(directory)
    except (OSError, ValueError) as error:
        raise CommandError(f"The masking rules cannot be read: {error}") from error


@contextmanager
def _told_by_signals(capture: Capture) -> Iterator[None]:
    told = {signal.SIGTERM: capture.stop, signal.SIGINT: capture.stop, RETRY_SIGNAL: capture.retry_refused}
    before = {number: signal.signal(number, lambda *_, do=do: do()) for number, do in told.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
