"""Runs a plan: a program without Django, so that the processes forked from it are as small."""

import gc
import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from apps.archive.capture.capture import Capture
from apps.archive.capture.delivery.isolation import Nursery
from apps.archive.capture.delivery.keeper import RETIRED, RETRY_SIGNAL, KeeperDied, KeeperProcess
from apps.archive.capture.delivery.opener import LaterBeginner, LaterPlace, LaterSink
from apps.archive.capture.heartbeat import Heart
from apps.archive.capture.journal.journal import JournalError
from apps.archive.capture.masking_rules import KeptRules
from apps.archive.capture.plan import Plan
from apps.archive.capture.resources import SWITCH_SECONDS, give_memory_back, go_first
from apps.archive.wire.report import CaptureReport
from apps.clusters.schedulers.base import Spool, SpoolError
from apps.clusters.schedulers.registry import SCHEDULERS
from apps.core.domain.masking import Masker
from apps.core.domain.plugins import UnknownPlugin

Say = Callable[[str], object]


class CaptureFailed(Exception):
    """Capture cannot start, had to end, or left something behind; the message says what."""


def run_planned(descriptor: int) -> int:
    """Run the plan in this file as the whole of this program; return its exit status."""
    plan = Plan.take(descriptor)
    logging.basicConfig(format=plan.log_format, datefmt="%Y-%m-%dT%H:%M:%S%z")
    for name, level in plan.log_levels.items():
        logging.getLogger(name).setLevel(level)
    out, err = (partial(print, file=file, flush=True) for file in (sys.stdout, sys.stderr))
    try:
        run(plan, out=out, err=err)
    except CaptureFailed as error:
        err(f"CommandError: {error}")
        return 1
    return 0


def run(plan: Plan, *, out: Say, err: Say) -> None:
    """Capture until SIGTERM or SIGINT, or once. Raises `CaptureFailed`."""
    try:
        _run(plan, out, err)
    except (JournalError, KeeperDied) as error:
        raise CaptureFailed(str(error)) from error


def open_spool(cluster: str, scheduler: str, directory: Path) -> Spool:
    """Raises `CaptureFailed`."""
    try:
        return SCHEDULERS.get(scheduler)(cluster, {}).spool(directory)
    except (UnknownPlugin, SpoolError) as error:
        raise CaptureFailed(str(error)) from error


def _run(plan: Plan, out: Say, err: Say) -> None:
    spool = open_spool(plan.cluster, plan.scheduler, plan.spool)
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.set_threshold(50_000)  # what passes through is many small objects without cycles
    give_memory_back()
    sinks = [(LaterBeginner if sink.begins_ahead else LaterSink)(sink, plan.settings) for sink in plan.sinks]
    places = [(LaterPlace(place, plan.settings), place.beside) for place in plan.places]
    with (
        closing(Nursery(sinks, places)) as nursery,
        closing(KeeperProcess(plan.directory, nursery)) as keeper,
    ):
        go_first()
        try:
            rules = KeptRules(plan.directory)
        except (OSError, ValueError) as error:
            raise CaptureFailed(f"The masking rules cannot be read: {error}") from error
        heart = Heart(
            cluster=plan.cluster,
            places=nursery.places,
            rules=rules,
            masker=lambda rules: Masker(names=plan.mask_names, key=plan.masking_key, rules=rules),
        )
        capture = Capture(
            cluster=plan.cluster,
            scheduler=plan.scheduler,
            spool=spool,
            keeper=keeper,
            masker=heart.masker(),
            clock=partial(datetime.now, UTC),
            watch=plan.watch,
        )
        with _stopped_by_signals(capture):
            if plan.once:
                capture.run_once(patience_seconds=plan.patience_seconds)
                _summarise(plan.cluster, capture.report(), out, err)
            else:
                _warn_of_retired(capture.report(), err)
                threading.Thread(target=heart.beat_for, args=(capture,), daemon=True).start()
                out(f"capturing the jobs of {plan.cluster}")
                capture.run(rescan_seconds=plan.rescan_seconds)
                heart.stop()
                out(f"stopped; captured {capture.captured} jobs of {plan.cluster}")


def _warn_of_retired(report: CaptureReport, err: Say) -> None:
    for name, sink in report.sinks.items():
        if sink.retired:
            err(f"{name}: {sink.behind} jobs behind, {sink.refused} refused: {RETIRED}")


def _summarise(cluster: str, report: CaptureReport, out: Say, err: Say) -> None:
    """Print what was captured. Raises `CaptureFailed` where something that can be read is not in the archive."""
    _warn_of_retired(report, err)
    out(f"captured {report.captured} jobs of {cluster}")
    for path, reason in report.unreadable.items():
        err(f"not readable: {path}: {reason}")
    for path in report.incomplete:
        err(f"incomplete: {path}")
    sinks = {name: sink for name, sink in report.sinks.items() if not sink.retired}
    problems = [f"{name}: {s.behind} jobs stay in the journal: {s.last_error}" for name, s in sinks.items() if s.behind]
    problems += [f"{name} refuses job {job_id}: {why}" for name, s in sinks.items() for job_id, why in s.last_refused]
    problems += [f"{name} refuses {s.refused} jobs: see --refused" for name, s in sinks.items() if s.refused]
    if report.last_error or report.waiting > len(report.incomplete):
        problems.append(f"the spool was not captured completely: {report.last_error or 'stopped before the end'}")
    if problems:
        raise CaptureFailed("\n".join(problems))


@contextmanager
def _stopped_by_signals(capture: Capture) -> Iterator[None]:
    actions = {signal.SIGTERM: capture.stop, signal.SIGINT: capture.stop, RETRY_SIGNAL: capture.retry_refused}
    before = {number: signal.signal(number, lambda *_, do=do: do()) for number, do in actions.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
