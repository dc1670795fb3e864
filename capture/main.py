"""Runs a plan: a program without Django with two processes, one for the spool,
one for the journal.
"""

import gc
import logging
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from apps.clusters.schedulers.base import Spool, SpoolError
from apps.clusters.schedulers.registry import SCHEDULERS
from apps.core.domain.masking import Masker
from apps.core.domain.plugins import UnknownPlugin
from capture.capture import Capture
from capture.journal.journal import JournalError
from capture.plan import Plan
from capture.process import HandOverProcess, JournalDied
from capture.resources import SWITCH_SECONDS, give_memory_back, go_first
from capture.wire.report import CaptureReport

Say = Callable[[str], object]


class CaptureFailed(Exception):
    """Capture cannot start, had to end, or left something behind; the message says what."""


def run_taken(descriptor: int) -> int:
    """Run the plan in this file, as `run_planned`."""
    return run_planned(Plan.take(descriptor))


def run_planned(plan: Plan) -> int:
    """Run the plan as the whole of this program; return its exit status."""
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
    except (JournalError, JournalDied) as error:
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
    go_first()
    with closing(HandOverProcess(plan.directory, plan.open_portal)) as hand_over:
        capture = Capture(
            cluster=plan.cluster,
            scheduler=plan.scheduler,
            spool=spool,
            hand_over=hand_over,
            masker=lambda rules: Masker(names=plan.mask_names, key=plan.masking_key, rules=rules),
            clock=partial(datetime.now, UTC),
            watch=plan.watch,
        )
        with _stopped_by_signals(capture):
            if plan.once:
                capture.run_once(patience_seconds=plan.patience_seconds)
                _summarise(plan.cluster, capture.report(), out, err)
            else:
                out(f"capturing the jobs of {plan.cluster}")
                capture.run(rescan_seconds=plan.rescan_seconds)
                out(f"stopped; captured {capture.captured} jobs of {plan.cluster}")


def _summarise(cluster: str, report: CaptureReport, out: Say, err: Say) -> None:
    """Print what was captured.

    Raises `CaptureFailed` where something that can be read did not reach the portal.
    """
    out(f"captured {report.captured} jobs of {cluster}")
    for path, reason in report.unreadable.items():
        err(f"not readable: {path}: {reason}")
    for path in report.incomplete:
        err(f"incomplete: {path}")
    problems = []
    if report.behind:
        problems.append(
            f"{report.behind} jobs stay in the journal: "
            f"{report.portal_error or 'stopped before the end'}"
        )
    if report.refused:
        problems.append(
            f"the portal refuses {report.refused} jobs, which stay in the journal: "
            f"{report.why_refused}"
        )
    if report.undelivered and not report.behind:
        problems.append(
            f"the sinks lack {report.undelivered} batches: see `manage.py archive sinks`"
        )
    if report.last_error or report.waiting > len(report.incomplete):
        problems.append(
            "the spool was not captured completely: "
            f"{report.last_error or 'stopped before the end'}"
        )
    if problems:
        raise CaptureFailed("\n".join(problems))


@contextmanager
def _stopped_by_signals(capture: Capture) -> Iterator[None]:
    before = {
        number: signal.signal(number, lambda *_: capture.stop())
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
