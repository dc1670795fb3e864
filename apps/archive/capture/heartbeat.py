"""Capture's sign of life: tells the portal how it does, and takes the masking rules from there."""

import logging
import threading
from collections.abc import Callable, Sequence

from apps.archive.capture.capture import Capture
from apps.archive.capture.delivery.isolation import Place
from apps.archive.capture.known_rules import KnownRules
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
            detail = capture.report().as_detail()
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
