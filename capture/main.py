"""The program: two processes, one for the spool, one for the journal."""

import gc
import logging
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from apps.clusters.schedulers.base import Spool, SpoolError
from apps.clusters.schedulers.registry import SCHEDULERS
from apps.core.domain.plugins import UnknownPlugin
from apps.core.domain.secrets.log_formats import formatter
from apps.core.domain.secrets.masking import Masker, MaskPattern
from capture.capture import Capture
from capture.configuration import (
    BadConfiguration,
    Configuration,
    parse_options,
    read_configuration,
)
from capture.journal.journal import JournalError
from capture.portal import HttpPortal
from capture.process import HandOverProcess, JournalDied
from capture.resources import SWITCH_SECONDS, limit_heap, raise_priority
from capture.wire.report import CaptureReport


class CaptureFailed(Exception):
    """Capture could not start, had to stop, or left jobs behind; the message says which."""


def main(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run the program; return its exit status."""
    try:
        options = parse_options(arguments, environment)
        configuration = read_configuration(options, environment)
        _set_up_logging(configuration)
        run(configuration)
    except (BadConfiguration, CaptureFailed) as error:
        _print_error(f"error: {error}")
        return 1
    return 0


def run(configuration: Configuration) -> None:
    """Capture until SIGTERM or SIGINT, or once. Raises `CaptureFailed`."""
    try:
        _run(configuration)
    except (JournalError, JournalDied) as error:
        raise CaptureFailed(str(error)) from error


def open_spool(cluster: str, scheduler: str, directory: Path) -> Spool:
    """Return the spool of a scheduler in a directory. Raises `CaptureFailed`."""
    try:
        return SCHEDULERS.get(scheduler)(cluster, {}).spool(directory)
    except (UnknownPlugin, SpoolError) as error:
        raise CaptureFailed(str(error)) from error


def _run(configuration: Configuration) -> None:
    cluster = configuration.cluster
    spool = open_spool(cluster, configuration.scheduler, configuration.spool)
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.set_threshold(50_000)  # jobs are many small objects without cycles
    limit_heap()
    raise_priority()

    def make_masker(rules: Sequence[MaskPattern]) -> Masker:
        return Masker(names=configuration.mask_names, key=configuration.masking_key, rules=rules)

    portal = HttpPortal(configuration.portal, configuration.token, cluster)
    with closing(HandOverProcess(configuration.journal, portal)) as hand_over:
        capture = Capture(
            cluster=cluster,
            scheduler=configuration.scheduler,
            spool=spool,
            hand_over=hand_over,
            make_masker=make_masker,
            clock=partial(datetime.now, UTC),
            watch=configuration.watch,
        )
        with _stopped_by_signals(capture):
            if configuration.once:
                capture.run_once(patience_seconds=configuration.patience_seconds)
                _summarise(cluster, capture.report())
            else:
                _print(f"capturing the jobs of {cluster}")
                capture.run(rescan_seconds=configuration.rescan_seconds)
                _print(f"stopped; captured {capture.captured} jobs of {cluster}")


def _summarise(cluster: str, report: CaptureReport) -> None:
    """Print what was captured. Raises `CaptureFailed` if readable jobs did not reach the portal."""
    _print(f"captured {report.captured} jobs of {cluster}")
    for path, reason in report.unreadable.items():
        _print_error(f"not readable: {path}: {reason}")
    for path in report.incomplete:
        _print_error(f"incomplete: {path}")
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


def _set_up_logging(configuration: Configuration) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(formatter(configuration.log_format))
    logging.basicConfig(level=configuration.log_level, handlers=[handler])
    # Its warnings about odd headers contain the URL.
    logging.getLogger("urllib3.connection").setLevel(logging.ERROR)


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _print_error(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
