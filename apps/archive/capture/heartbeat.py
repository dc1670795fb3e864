"""Capture's sign of life: tells the portal how it does, and takes the masking rules from there."""

import logging
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from apps.archive.capture.capture import Capture, CaptureStatus
from apps.archive.capture.delivery.isolation import Place
from apps.archive.capture.known_rules import KnownRules
from apps.archive.handover.report import MOST_TOLD, CaptureReport, SinkReport, printable
from apps.core.domain.masking import Masker, Rule

logger = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 10.0


class Heart:
    """Beats in a thread of its own. A portal that is away costs capture nothing."""

    def __init__(
        self, *, cluster: str, places: Sequence[Place], rules: KnownRules, masker: Callable[[Sequence[Rule]], Masker]
    ) -> None:
        self._cluster = cluster
        self._places = places
        self._rules = rules
        self._masker = masker
        self._stopping = threading.Event()

    def masker(self) -> Masker:
        """Return what masks by the rules in force, or by those last known where nobody can be asked."""
        self._ask_rules()
        return self._masker(self._rules.rules)

    def beat_for(self, capture: Capture) -> None:
        """Beat until `stop`."""
        while True:
            self._report(capture)
            if self._ask_rules():
                capture.use_masker(self._masker(self._rules.rules))
            if self._stopping.wait(HEARTBEAT_SECONDS):
                break
        for place in self._places:
            place.close()

    def stop(self) -> None:
        self._stopping.set()

    def _report(self, capture: Capture) -> None:
        try:
            detail = report_of(capture.status()).as_detail()
        except Exception as error:  # the journal's disk, say: the next beat may tell again
            logger.warning("no report: %s", error)
            return
        for place in self._places:
            try:
                place.report(self._cluster, detail)
            except Exception as error:  # it is away: capture goes on without it
                logger.debug("no heartbeat: %s", error)

    def _ask_rules(self) -> bool:
        """Ask for the rules and keep them. Returns whether they have changed; not all answer: they stay."""
        try:
            found = [rule for place in self._places for rule in place.masking_rules()]
            return bool(self._places) and self._rules.keep(list(dict.fromkeys(found)))
        except Exception as error:  # as above
            logger.warning("the masking rules stay as they were: %s", error)
            return False


def report_of(status: CaptureStatus) -> CaptureReport:
    """Return what capture says of itself, fit for JSON."""
    at = datetime.now(UTC)
    return CaptureReport(
        captured=status.captured,
        waiting=status.waiting,
        last_error=printable(status.last_error),
        unreadable_count=len(status.unreadable),
        unreadable={printable(path): printable(why) for path, why in [*status.unreadable.items()][:MOST_TOLD]},
        incomplete=[printable(path) for path in status.incomplete[:MOST_TOLD]],
        sinks={
            sink.name: SinkReport(
                behind=sink.behind,
                lag_seconds=max(0.0, round((at - sink.oldest_at).total_seconds(), 1)) if sink.oldest_at else 0,
                written=sink.written,
                last_error=printable(sink.last_error),
                retry_seconds=sink.retry_seconds,
                refused=sink.refused_count,
                last_refused=tuple((printable(job_id), printable(why)) for job_id, why in sink.refused),
                retired=sink.retired,
            )
            for sink in status.sinks
        },
    )
