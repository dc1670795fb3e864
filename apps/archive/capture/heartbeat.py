"""Capture's heartbeat: reports to the portals, and fetches the masking rules from there."""

import logging
import threading
from collections.abc import Callable, Sequence

from apps.archive.capture.capture import Capture
from apps.archive.capture.delivery.isolation import Place
from apps.archive.capture.masking_rules import KeptRules
from apps.core.domain.masking import Masker, Rule

logger = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 10.0


class Heart:
    """Runs in its own thread. A portal that is away does not slow capture down."""

    def __init__(
        self, *, cluster: str, places: Sequence[Place], rules: KeptRules, masker: Callable[[Sequence[Rule]], Masker]
    ) -> None:
        self._cluster = cluster
        self._places = places
        self._rules = rules
        self._masker = masker
        self._stopping = threading.Event()

    def masker(self) -> Masker:
        """Return a masker with the rules in force, or with those last received where no portal can be reached."""
        self._fetch_rules()
        return self._masker(self._rules.rules)

    def beat_for(self, capture: Capture) -> None:
        """Beat until `stop`."""
        while True:
            self._report(capture)
            if self._fetch_rules():
                capture.reader.masker = self._masker(self._rules.rules)
            if self._stopping.wait(HEARTBEAT_SECONDS):
                break
        for place in self._places:
            place.close()

    def stop(self) -> None:
        self._stopping.set()

    def _report(self, capture: Capture) -> None:
        try:
            detail = capture.report().as_detail()
        except Exception as error:  # the journal's disk, say: the next beat may succeed
            logger.warning("no report: %s", error)
            return
        for place in self._places:
            try:
                place.report(self._cluster, detail)
            except Exception as error:  # capture goes on without it
                logger.debug("no heartbeat: %s", error)

    def _fetch_rules(self) -> bool:
        """Fetch the rules and keep them. Returns whether they have changed. Unless all portals answer, they stay."""
        try:
            found = [rule for place in self._places for rule in place.masking_rules()]
            return bool(self._places) and self._rules.keep(list(dict.fromkeys(found)))
        except Exception as error:  # as above
            logger.warning("the masking rules stay as they were: %s", error)
            return False
