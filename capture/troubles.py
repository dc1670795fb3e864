"""Current errors of parts of capture that keep running despite them."""

import logging
from collections.abc import Callable

from apps.clusters.schedulers.base import SpoolError
from capture.portal import PortalAway

logger = logging.getLogger(__name__)


class Troubles:
    """Failures by operation, each logged once. `fatal` errors are passed on to the caller."""

    def __init__(self, *, fatal: tuple[type[Exception], ...] = ()) -> None:
        self._fatal = fatal
        self._reasons: dict[str, str] = {}

    def __str__(self) -> str:
        return "; ".join(dict.fromkeys(self._reasons.values()))

    def guarded(self, part: str, step: Callable[[], object]) -> bool:
        """Try `step`; return whether it succeeded."""
        try:
            step()
        except self._fatal:
            raise
        except Exception as error:
            reason = str(error).strip() or repr(error)
            if reason not in self._reasons.values():
                expected = isinstance(error, (OSError, SpoolError, PortalAway))
                request = {"request_id": getattr(error, "request_id", None)}
                logger.warning("%s: %s", part, reason, exc_info=not expected, extra=request)
            self._reasons[part] = reason
            return False
        self._reasons.pop(part, None)
        return True
